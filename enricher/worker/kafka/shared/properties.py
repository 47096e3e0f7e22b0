"""Which of librdkafka's properties a user may set: none that breaks a promise of the worker, or runs code.

Settings may come from a `.env` file in the working directory, which another user may have written. So no property may load
a library or run a command; settings may still choose brokers and certificates. `sasl.oauthbearer.*` is allowed: it makes
the client request an address over HTTP and read key files, but starts nothing.

Every property that is not named here may be set. These were checked and are allowed, because a bad value only slows the
worker down or ends it with a message: `message.timeout.ms` (librdkafka keeps it within the transaction timeout), `retries`,
`request.timeout.ms`, `fetch.*`, `queued.*`, `heartbeat.interval.ms`, `api.version.request`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from enricher.errors import SettingsError

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
    "oauth_cb": f"{_NOT_TEXT}; the client itself gets tokens with sasl.oauthbearer.method=oidc",
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
"""Allowed values: librdkafka puts both into the command line of `kinit`, which a shell reads."""
_WHOLE_NUMBER = re.compile(r"0|[1-9]\d*")


def check_properties(properties: Mapping[str, Any]) -> None:
    """Raise SettingsError for a property that may not be set, or not to this value. Shows no value of a refused one."""
    for name, value in properties.items():
        client = next((prefix for prefix in CLIENTS if name.startswith(prefix)), None)
        bare = name.removeprefix(client or "")
        if not bare.startswith("topic.metadata."):
            bare = bare.removeprefix("topic.")  # the Python client's own prefix: `topic.acks` is `acks`
        if why := _REFUSED.get(bare) or (_NOT_TEXT if bare.endswith("_cb") else None):
            message = f"kafka.properties may not set '{bare}': {why}"
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
