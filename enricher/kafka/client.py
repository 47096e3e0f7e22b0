"""What both Kafka clients are configured with, and what no user property may change.

The facts behind each choice were measured on Kafka 4.3 with confluent-kafka 2.16, where not said otherwise.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from confluent_kafka import KafkaError

from enricher.kafka.properties import CLIENTS, check_properties, shortest_retry_pause_s
from enricher.kafka.repeats import Repeats
from enricher.kafka.statistics import INTERVAL_MS

log = logging.getLogger("librdkafka")

_RETRY_BACKOFF_MS = 250


@dataclass(frozen=True, slots=True)
class KafkaConfig:
    """How to reach the cluster, as whom, and for how long to wait.

    `max_record_bytes`: of one enriched record; `max_message_bytes`: of the largest message of all, dead letters included.

    `properties`: librdkafka's own, for both clients, or for one with the prefix `consumer.` or `producer.`.
    """

    bootstrap_servers: str
    group_id: str
    instance: str
    input_topic: str
    output_topic: str
    dead_letter_topic: str
    session_timeout_s: float
    max_poll_interval_s: float
    transaction_timeout_s: float
    request_timeout_s: float
    max_record_bytes: int
    max_message_bytes: int
    start: Literal["resume", "beginning", "end"] = "resume"
    """Where a partition begins for which the group has no committed offset."""
    allow_fewer_partitions: bool = False
    """Whether an output topic may have fewer partitions than the input."""
    partition_timeout_s: float = 60.0
    """For how long a partition that has records may give none."""
    max_headers: int = 300
    """Headers of a record that are kept; where there are more, none is."""
    properties: Mapping[str, str | int | float | bool] = field(default_factory=dict, repr=False)  # it may hold secrets

    def __post_init__(self) -> None:
        check_properties(self.properties)

    @property
    def transactional_id(self) -> str:
        """Stable over restarts and unique among live workers: it fences what a dead one left behind."""
        return transactional_id(self.group_id, self.instance)

    @property
    def transactional_prefix(self) -> str:
        """What the transactional ids of all workers of the group begin with, and those of no other group."""
        return transactional_id(self.group_id, "")

    def client(self, kind: str) -> dict[str, Any]:
        """Properties of any client of ours: `kind` is `consumer`, `producer` or `admin`."""
        # A request that is sent while an idle connection is closed fails, and administrators are idle for most of the time.
        kept = {"connections.max.idle.ms": 0} if kind == "admin" else {}
        return self._shared() | kept | self._user(kind)

    def consumer(self) -> dict[str, Any]:
        """Properties of the worker's consumer."""
        return self._shared() | {
            "group.id": self.group_id,
            "partition.assignment.strategy": "cooperative-sticky",
            "session.timeout.ms": int(self.session_timeout_s * 1000),
            # Members learn of a rebalance by a heartbeat's answer: partitions on the move stand still for two of them.
            "heartbeat.interval.ms": min(1_000, int(self.session_timeout_s * 100)),
            "max.poll.interval.ms": int(self.max_poll_interval_s * 1000),
            # New partitions are noticed by looking; the client's own five minutes would leave them unread for as long.
            "topic.metadata.refresh.interval.ms": 30_000,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "isolation.level": "read_committed",
            # The client's own default, `largest`, silently skips what is there before the first commit.
            "auto.offset.reset": "earliest",
            # Off by default in the client: a damaged batch that is not compressed would pass as data.
            "check.crcs": True,
            # How the source knows where a partition ends behind transaction markers.
            "enable.partition.eof": True,
            # Small prefetch, and with it the short backoff: with the default of 1 s it reads in fits and starts.
            "queued.min.messages": 2000,
            "queued.max.messages.kbytes": 8192,
            "fetch.queue.backoff.ms": 20,
            # Small as well: these count packed bytes, and 1 kB of zstd may unpack to 32 MB (deploy/memory.md). A batch that
            # is larger is fetched all the same, alone.
            "fetch.message.max.bytes": 16_384,
            "fetch.max.bytes": 1_048_576,
            "fetch.wait.max.ms": 500,
            "statistics.interval.ms": INTERVAL_MS,
        } | self._user("consumer")  # fmt: skip

    def producer(self) -> dict[str, Any]:
        """Properties of the worker's producer."""
        return self._shared() | {
            "transactional.id": self.transactional_id,
            "transaction.timeout.ms": int(self.transaction_timeout_s * 1000),
            # Every transaction is flushed at once: lingering only adds to it.
            "linger.ms": 0,
            "compression.type": "lz4",
            "message.max.bytes": self.max_message_bytes,
            # The broker's limit is for a batch: many records together must not be larger than one may be.
            "batch.size": min(1_000_000, self.max_record_bytes),
            # What is not said to have failed, and not left over by `flush`, was written.
            "delivery.report.only.error": True,
            # What Java clients use, so that a key stays on its partition whoever writes it.
            "partitioner": "murmur2_random",
            "retry.backoff.ms": _RETRY_BACKOFF_MS,
            "retry.backoff.max.ms": 1000,
        } | self._user("producer")  # fmt: skip

    @property
    def retry_pause_s(self) -> float:
        """The shortest time after which the producer sends a request of a transaction again."""
        return shortest_retry_pause_s(self.producer())

    def _shared(self) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.bootstrap_servers,
            "client.id": f"enricher-{self.instance}",
            "socket.timeout.ms": int(min(10.0, self.transaction_timeout_s) * 1000),
            # A coordinator that left the metadata otherwise hangs send_offsets for ever (librdkafka 5511, 5456).
            "connections.max.idle.ms": 3000,
            "metadata.max.age.ms": 5000,
            "reconnect.backoff.ms": 50,
            "reconnect.backoff.max.ms": 1000,
            "log.connection.close": False,
        }

    def _user(self, kind: str) -> dict[str, Any]:
        """The user's properties for one kind of client; the ones with its prefix win."""
        general = {name: value for name, value in self.properties.items() if not name.startswith(CLIENTS)}
        prefix = f"{kind}."
        own = {name.removeprefix(prefix): value for name, value in self.properties.items() if name.startswith(prefix)}
        return general | own


def transactional_id(*parts: str) -> str:
    """The parts with `/` between them. Two lists of parts never give one id: `%` and `/` inside of a part are encoded."""
    return "/".join(part.replace("%", "%25").replace("/", "%2F") for part in parts)


_OFFSETS_GONE = "offset reset"
_REFUSED_TOPIC = re.compile(r'partition "([^"]+)" .*Topic authorization failed')
# What the other side says of our credentials, or what we say of its: asking again changes nothing.
_REFUSALS = {KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED}  # noqa: SLF001  the client's name
_REFUSED_TLS = re.compile(r"\balert\b|certificate could not be verified|certificate verify failed")
# What the client does not say in words that a person can act on.
_HINTS = {
    # TLS's own word for each case; a broker in Java says `certificate unknown` for nearly all of them.
    r"alert (bad certificate|certificate \w+|unknown ca|handshake failure)": "the broker does not take this client's "
    "certificate (ssl.certificate.location): there is none, it is expired, or it is not from a CA that the broker trusts",
    r"Disconnected.* in state SSL_HANDSHAKE": "this may be a listener without TLS, see security.protocol",
    r"^$": "no reason was given: is the address right, and is security.protocol what this listener speaks?",
}


class LastWord:
    """Keeps the last complaint of a client: calls often say only 'timed out', the reason comes by this callback.

    `config`: of the worker whose client it is; without it no names of rights can be told.
    """

    def __init__(self, config: KafkaConfig | None = None) -> None:
        self.config = config
        self.refused_topics: set[str] = set()
        """Topics that the client's log says were refused: its errors do not name them."""
        self.logger = logging.Logger("librdkafka")  # noqa: LOG001  in front of the common one, which it passes on to
        self.logger.parent = log
        self.logger.setLevel(logging.DEBUG)  # of every line `_note` decides
        self.logger.addFilter(self._note)
        self.refused = False
        """Whether the last complaint was about credentials or certificates, which no waiting mends."""
        self._text = ""
        self._repeats = Repeats()

    def __call__(self, error: KafkaError) -> None:
        """The client's `error_cb`. Must not raise. 'All brokers are down' follows every reason and would hide it."""
        if error.code() != KafkaError._ALL_BROKERS_DOWN:  # noqa: SLF001  the client's name
            self._text = f"{error.name()}: {error.str()}"
            self.refused = error.code() in _REFUSALS or bool(_REFUSED_TLS.search(self._text))
            if self._repeats.fresh(self._text):
                self.say(self._text)

    def say(self, text: str) -> None:
        """Tell the operator at once: the call that fails for it may take a while to say so."""
        log.warning("%s", text)

    def explain(self, error: KafkaError) -> str:
        """The error, and the complaint behind it if the error itself says too little."""
        vague = error.code() in {KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN}  # noqa: SLF001  that is how the client names them
        text = f"{error.name()}: {error.str()}"
        if not vague:
            return text
        said = [f"the client said before: {self._text}"] if self._text else []
        hints = [hint for pattern, hint in _HINTS.items() if re.search(pattern, self._text)]
        return f"{text} ({'; '.join(said + hints)})" if said or hints else text

    def _note(self, record: logging.LogRecord) -> bool:
        """Whether this line of the client's log is passed on."""
        text = record.getMessage()
        if match := _REFUSED_TOPIC.search(text):
            self.refused_topics.add(match[1])
        # That records were deleted before anybody read them is told by a warning, and nowhere else.
        wanted = log.isEnabledFor(record.levelno) or _OFFSETS_GONE in text
        return wanted and (record.levelno < logging.INFO or self._repeats.fresh(text))
