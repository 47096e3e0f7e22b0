"""The properties of the Kafka clients: what a worker's clients have, and which ones a user may set.

A user may set none that breaks a promise of the worker, or runs code. Settings may come from a file in the working
directory, which another user may have written. So no property may load a library or run a command; settings may still choose
brokers and certificates. `sasl.oauthbearer.*` is allowed: it makes the client request an address over HTTP and read key
files, but starts nothing.

Every property that is not named here may be set. These were checked and are allowed, because a bad value only slows the
worker down or ends it with a message: `message.timeout.ms` (librdkafka keeps it within the transaction timeout), `retries`,
`request.timeout.ms`, `fetch.*`, `queued.*`, `heartbeat.interval.ms`, `api.version.request`.

Unless stated otherwise, the facts behind each choice were measured on Kafka 4.3 with confluent-kafka 2.16.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from enricher.errors import SettingsError

HEARTBEAT_INTERVAL_MS = 250
"""`heartbeat.interval.ms`. A partition whose owner leaves stands still for up to this long; deploy/scaling.md has what it
costs the brokers."""
STATISTICS_INTERVAL_MS = 5_000
"""`statistics.interval.ms`. Parsing them costs 0.1 ms."""
_PRIORITY_INTERVAL_MS = 1_000
"""The interval with several input topics: only statistics tell that the first topic has records behind the fetched
records of other topics."""
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
    partition_timeout_s: float = 300.0
    """How long a partition that has records may deliver none."""
    other_inputs: tuple[str, ...] = ()
    """The topics after `input_topic`, in the order of their priority."""
    properties: Mapping[str, str | int | float | bool] = field(default_factory=dict, repr=False)  # it may hold secrets
    login: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """The properties that `kafka.token` adds (`tokens.login_properties`)."""

    def __post_init__(self) -> None:
        check_properties(self.properties, with_token=bool(self.login))

    @property
    def inputs(self) -> tuple[str, ...]:
        """All input topics."""
        return (self.input_topic, *self.other_inputs)

    def of_input(self, topic: str) -> KafkaConfig:
        """The same configuration with this as the only input topic."""
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
        """Properties of a client beside the worker's own two. `kind`: `consumer`, `producer` or `admin`."""
        # A request that is sent while an idle connection is closed fails, and admin clients are idle most of the time.
        kept = {"connections.max.idle.ms": 0} if kind == "admin" else {}
        return self._share() | kept | self._user(kind)

    def consumer(self) -> dict[str, Any]:
        """Properties of the worker's consumer."""
        return self._share() | {
            "group.id": self.group_id,
            "partition.assignment.strategy": "cooperative-sticky",
            "session.timeout.ms": int(self.session_timeout_s * 1000),
            "heartbeat.interval.ms": HEARTBEAT_INTERVAL_MS,
            "max.poll.interval.ms": int(self.max_poll_interval_s * 1000),
            # New partitions are found by this refresh. With the client's default they stay unread for up to five minutes.
            "topic.metadata.refresh.interval.ms": 30_000,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "isolation.level": "read_committed",
            # The client's default, `largest`, silently skips records that were there before the first commit.
            "auto.offset.reset": "earliest",
            # Off by default: a damaged batch that is not compressed would pass as data.
            "check.crcs": True,
            # Tells the source where a partition ends, behind transaction markers.
            "enable.partition.eof": True,
            # A small prefetch needs the short backoff: with the default of 1 s reading stops again and again.
            # Records of the first topic wait behind fetched records of other topics, which a hold drops.
            "queued.min.messages": 100 if self.other_inputs else 2000,
            "queued.max.messages.kbytes": 8192,
            "fetch.queue.backoff.ms": 20,
            # These count compressed bytes, and 1 kB of zstd may decompress to 32 MB (deploy/scaling.md). A larger batch is
            # still fetched, alone.
            "fetch.message.max.bytes": 16_384,
            "fetch.max.bytes": 1_048_576,
            "fetch.wait.max.ms": 100 if self.other_inputs else 500,
            "statistics.interval.ms": _PRIORITY_INTERVAL_MS if self.other_inputs else STATISTICS_INTERVAL_MS,
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
            **self.login,
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


CLIENTS = ("consumer.", "producer.")
"""Prefixes of properties for one kind of client."""
_EXACTLY_ONCE = "exactly-once depends on its value"
_OWN_SETTING = "it has its own setting, see 'enricher settings'"
_RUNS_CODE = "it would load code or run a command"
_NOT_TEXT = "it takes a function or an object, which a setting cannot hold"
_NO_HANG = "another value lets a call hang if its coordinator leaves the cluster (librdkafka 5511)"
_REFUSED: Mapping[str, str] = {
    **dict.fromkeys(
        (
            "acks",
            "auto.commit.enable",
            "auto.offset.reset",
            "enable.auto.commit",
            "enable.auto.offset.store",
            "enable.gapless.guarantee",
            "enable.idempotence",
            "enable.partition.eof",
            "group.instance.id",
            "group.protocol",
            "isolation.level",
            "max.in.flight",
            "max.in.flight.requests.per.connection",
            "offset.store.method",
            "partition.assignment.strategy",
            "request.required.acks",
            "transactional.id",
        ),
        _EXACTLY_ONCE,
    ),
    **dict.fromkeys(
        (
            "bootstrap.servers",
            "group.id",
            "max.poll.interval.ms",
            "message.max.bytes",
            "metadata.broker.list",
            "session.timeout.ms",
            "transaction.timeout.ms",
        ),
        _OWN_SETTING,
    ),
    **dict.fromkeys(
        (
            "plugin.library.paths",
            "sasl.kerberos.kinit.cmd",
            "ssl.engine.id",
            "ssl.engine.location",
            "ssl.providers",
        ),
        _RUNS_CODE,
    ),
    **dict.fromkeys(
        (
            "default.topic.config",
            "default_topic_conf",
            "interceptors",
            "logger",
            "msg_order_cmp",
            "on_commit",
            "on_delivery",
            "opaque",
            "ssl_ca",
            "ssl_certificate",
            "ssl_engine_callback_data",
            "ssl_key",
        ),
        _NOT_TEXT,
    ),
    "batch.size": "it is computed from the limits of the output topics; the broker refuses a larger batch as a whole",
    "oauth_cb": f"{_NOT_TEXT}; kafka.token names who gives tokens",
    "check.crcs": "without it a damaged record would pass as data",
    "connections.max.idle.ms": _NO_HANG,
    "metadata.max.age.ms": _NO_HANG,
    "statistics.interval.ms": "health probes and metrics use the statistics",
}
_SENT_TWICE_MS = 500
"""librdkafka repeats a TxnOffsetCommit after this time, whatever the properties say (rdkafka_txnmgr.c)."""
_SHORTEST_PAUSE_MS = 100
"""p99 of produce and flush of ordinary transactions, on three brokers of a busy machine."""
_JITTER = 0.2
_RETRIED = (
    "a transaction that takes longer than the shortest pause before a retry gets a new producer, and ordinary "
    f"transactions take up to {_SHORTEST_PAUSE_MS} ms"
)
_AFTER_OUTAGE = "after an outage a worker would wait for that long"


@dataclass(frozen=True, slots=True)
class _Bound:
    """The allowed values of an integer, both ends included, and the reason."""

    low: int
    high: int
    why: str
    clients: tuple[str, ...] = CLIENTS


_LONGEST_MS = 300_000
"""librdkafka's limit for the pauses between retries."""
_BOUNDS: Mapping[str, _Bound] = {
    "retry.backoff.ms": _Bound(int(_SHORTEST_PAUSE_MS / (1 - _JITTER)), _LONGEST_MS, _RETRIED, ("producer.",)),
    "retry.backoff.max.ms": _Bound(_SHORTEST_PAUSE_MS, _LONGEST_MS, _RETRIED, ("producer.",)),
    "reconnect.backoff.ms": _Bound(0, 10_000, _AFTER_OUTAGE),
    "reconnect.backoff.max.ms": _Bound(0, 10_000, _AFTER_OUTAGE),
    "socket.timeout.ms": _Bound(
        1_000, 60_000, "a frozen broker must be detected, and a busy one must have time to answer"
    ),
    "topic.metadata.refresh.interval.ms": _Bound(
        1, _LONGEST_MS, "new partitions are found by this refresh and stay unread until then"
    ),
}
_CHOICES: Mapping[str, tuple[frozenset[str], str]] = {
    "partitioner": (frozenset({"random"}), "records of one key must stay on one partition"),
}
_IN_A_COMMAND: Mapping[str, re.Pattern[str]] = {
    "sasl.kerberos.keytab": re.compile(r"[\w./:@-]+", re.ASCII),
    "sasl.kerberos.principal": re.compile(r"\w[\w./@-]*", re.ASCII),
}
"""The allowed values of properties that librdkafka puts into the command line of `kinit`, which a shell reads."""
_WHOLE_NUMBER = re.compile(r"0|[1-9]\d*")


def check_properties(properties: Mapping[str, Any], *, with_token: bool = False) -> None:
    """Raise SettingsError for a property that may not be set, or not to this value. The message shows no value.

    `with_token`: whether clients sign in as `kafka.token` says.
    """
    for name, value in properties.items():
        client = next((prefix for prefix in CLIENTS if name.startswith(prefix)), None)
        bare = name.removeprefix(client or "")
        if not bare.startswith("topic.metadata."):
            bare = bare.removeprefix("topic.")  # the Python client's own prefix: `topic.acks` is `acks`
        if why := _REFUSED.get(bare) or (_NOT_TEXT if bare.endswith("_cb") else None):
            message = f"kafka.properties may not set '{bare}': {why}"
            raise SettingsError(message)
        if with_token and bare in {"sasl.mechanism", "sasl.mechanisms", "sasl.oauthbearer.method"}:
            message = f"kafka.properties: leave out '{name}' beside kafka.token, which sets it"
            raise SettingsError(message)
        if with_token and bare == "security.protocol" and str(value).upper() not in {"SASL_SSL", "SASL_PLAINTEXT"}:
            message = f"kafka.properties: '{name}' beside kafka.token must be SASL_SSL, which is also its default there"
            raise SettingsError(message)
        bound = _BOUNDS.get(bare)
        if bound and (client is None or client in bound.clients):
            _check_bound(name, value, bound)
        refused, why = _CHOICES.get(bare, (frozenset(), ""))
        if value in refused:
            message = f"kafka.properties may not set '{name}' to '{value}': {why}"
            raise SettingsError(message)
        if (allowed := _IN_A_COMMAND.get(bare)) and not allowed.fullmatch(str(value)):
            message = f"kafka.properties: '{name}' becomes part of a shell command, so not all characters are allowed"
            raise SettingsError(message)


def shortest_retry_pause_s(producer: Mapping[str, Any]) -> float:
    """The shortest time after which a producer with these properties repeats a request of a transaction.

    librdkafka subtracts up to 20 % from the backoff, then applies the maximum (rd_kafka_broker_buf_retry).
    """
    backoff_ms, longest_ms = float(producer["retry.backoff.ms"]), float(producer["retry.backoff.max.ms"])
    return min((1 - _JITTER) * backoff_ms, longest_ms, _SENT_TWICE_MS) / 1000


def _check_bound(name: str, value: object, bound: _Bound) -> None:
    if not _WHOLE_NUMBER.fullmatch(str(value)):
        message = f"kafka.properties: '{name}' must be a whole number from {bound.low} to {bound.high}"
        raise SettingsError(message)
    if not bound.low <= int(str(value)) <= bound.high:
        message = f"kafka.properties: '{name}' is {value}, but must be from {bound.low} to {bound.high}: {bound.why}"
        raise SettingsError(message)
