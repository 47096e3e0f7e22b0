"""The configuration of the Kafka clients.

Unless stated otherwise, the facts behind each choice were measured on Kafka 4.3 with confluent-kafka 2.16.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from enricher.worker.kafka.shared import heartbeats
from enricher.worker.kafka.shared.properties import CLIENTS, check_properties, shortest_retry_pause_s
from enricher.worker.kafka.shared.statistics import INTERVAL_MS, PRIORITY_INTERVAL_MS

_RETRY_BACKOFF_MS = 250


@dataclass(frozen=True, slots=True)
class KafkaConfig:
    """Address, names, topics and timeouts of the worker's clients.

    `max_record_bytes`: of one enriched record. `max_message_bytes`: of any message, dead letters included. `properties`:
    librdkafka's, for both clients, or for one of them with the prefix `consumer.` or `producer.`.
    """

    bootstrap_servers: str
    group_id: str
    instance: str
    input_topic: str
    """The input topic; the first one if there are several."""
    output_topic: str
    dead_letter_topic: str
    session_timeout_s: float
    max_poll_interval_s: float
    transaction_timeout_s: float
    request_timeout_s: float
    max_record_bytes: int
    max_message_bytes: int
    allow_fewer_partitions: bool = False
    """Whether an output topic may have fewer partitions than the input."""
    partition_timeout_s: float = 300.0
    """How long a partition that has records may deliver none."""
    max_headers: int = 300
    """A record with more headers keeps none of them."""
    other_inputs: tuple[str, ...] = ()
    """The topics after `input_topic`, in the order of their priority."""
    replay: str = ""
    """The name of the range that the group replays. Its bounds are committed before its first member joins; a partition
    without them is not read."""
    properties: Mapping[str, str | int | float | bool] = field(default_factory=dict, repr=False)  # it may hold secrets

    def __post_init__(self) -> None:
        check_properties(self.properties)

    @property
    def inputs(self) -> tuple[str, ...]:
        """All input topics."""
        return (self.input_topic, *self.other_inputs)

    def of_input(self, topic: str) -> KafkaConfig:
        """The same with this as the only input topic."""
        return replace(self, input_topic=topic, other_inputs=())

    @property
    def topics(self) -> list[str]:
        """Inputs, output and dead letters, each once: a client may write its outputs and dead letters to one topic."""
        return list(dict.fromkeys((*self.inputs, self.output_topic, self.dead_letter_topic)))

    @property
    def transactional_id(self) -> str:
        """Stable across restarts and unique among live workers, so a restart fences its predecessor's transactions."""
        return transactional_id(self.group_id, self.instance)

    @property
    def transactional_prefix(self) -> str:
        """The prefix of the transactional ids of all workers of this group, and of no other group."""
        return transactional_id(self.group_id, "")

    def client(self, kind: str) -> dict[str, Any]:
        """Properties of a client that is not the worker's. `kind`: `consumer`, `producer` or `admin`."""
        # A request that is sent while an idle connection is closed fails, and admin clients are idle most of the time.
        kept = {"connections.max.idle.ms": 0} if kind == "admin" else {}
        return self._share() | kept | self._user(kind)

    def consumer(self) -> dict[str, Any]:
        """Properties of the worker's consumer."""
        return self._share() | {
            "group.id": self.group_id,
            "partition.assignment.strategy": "cooperative-sticky",
            "session.timeout.ms": int(self.session_timeout_s * 1000),
            "heartbeat.interval.ms": heartbeats.INTERVAL_MS,
            "max.poll.interval.ms": int(self.max_poll_interval_s * 1000),
            # New partitions are found by this refresh. With the client's default they stay unread for up to five minutes.
            "topic.metadata.refresh.interval.ms": 30_000,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "isolation.level": "read_committed",
            # The client's default, `largest`, silently skips records that were there before the first commit.
            # Of a range that is replayed, the source has to know what retention deletes before it is read.
            "auto.offset.reset": "error" if self.replay else "earliest",
            # Off by default: a damaged batch that is not compressed would pass as data.
            "check.crcs": True,
            # Tells the source where a partition ends, behind transaction markers.
            "enable.partition.eof": True,
            # A small prefetch needs the short backoff: with the default of 1 s reading stops again and again.
            # Records of the first topic wait behind those that are fetched of the others, and a hold drops the latter.
            "queued.min.messages": 100 if self.other_inputs else 2000,
            "queued.max.messages.kbytes": 8192,
            "fetch.queue.backoff.ms": 20,
            # These count compressed bytes, and 1 kB of zstd may decompress to 32 MB (deploy/scaling.md). A larger batch is
            # still fetched, alone.
            "fetch.message.max.bytes": 16_384,
            "fetch.max.bytes": 1_048_576,
            "fetch.wait.max.ms": 100 if self.other_inputs else 500,
            "statistics.interval.ms": PRIORITY_INTERVAL_MS if self.other_inputs else INTERVAL_MS,
        } | self._user("consumer")  # fmt: skip

    def producer(self) -> dict[str, Any]:
        """Properties of the worker's producer."""
        return self._share() | {
            "transactional.id": self.transactional_id,
            "transaction.timeout.ms": int(self.transaction_timeout_s * 1000),
            # Every transaction is flushed at once, so lingering only adds latency.
            "linger.ms": 0,
            "compression.type": "lz4",
            "message.max.bytes": self.max_message_bytes,
            # The broker's limit applies to a batch: all its records together must not be larger than one record may be.
            "batch.size": min(1_000_000, self.max_record_bytes),
            # A record without a failure report, and not left over by `flush`, was written.
            "delivery.report.only.error": True,
            # The Java clients' default, so a key stays on its partition whichever client writes it.
            "partitioner": "murmur2_random",
            "retry.backoff.ms": _RETRY_BACKOFF_MS,
            "retry.backoff.max.ms": 1000,
        } | self._user("producer")  # fmt: skip

    @property
    def start_timeout_s(self) -> float:
        """How long the start of a partition may stay unknown.

        The open transaction of a worker that died hides the committed offset until the broker ends it.
        """
        return self.transaction_timeout_s + self.partition_timeout_s

    @property
    def retry_pause_s(self) -> float:
        """The shortest time after which the producer repeats a request of a transaction."""
        return shortest_retry_pause_s(self.producer())

    def _share(self) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.bootstrap_servers,
            "client.id": f"enricher-{self.instance}",
            "socket.timeout.ms": int(min(10.0, self.transaction_timeout_s) * 1000),
            # Without these, send_offsets hangs for ever if the coordinator leaves the metadata (librdkafka 5511, 5456).
            "connections.max.idle.ms": 3000,
            "metadata.max.age.ms": 5000,
            "reconnect.backoff.ms": 50,
            "reconnect.backoff.max.ms": 1000,
            "log.connection.close": False,
        }

    def _user(self, kind: str) -> dict[str, Any]:
        """The user's properties for one kind of client; those with its prefix take precedence."""
        general = {name: value for name, value in self.properties.items() if not name.startswith(CLIENTS)}
        prefix = f"{kind}."
        own = {name.removeprefix(prefix): value for name, value in self.properties.items() if name.startswith(prefix)}
        chosen = general | own
        if "client.id" in chosen:  # `kafka-consumer-groups --members` shows by it who is who
            chosen["client.id"] = f"{chosen['client.id']}-{self.instance}"
        return chosen


def transactional_id(*parts: str) -> str:
    """The parts joined by `/`. `%` and `/` inside a part are encoded, so different parts never give the same id."""
    return "/".join(part.replace("%", "%25").replace("/", "%2F") for part in parts)
