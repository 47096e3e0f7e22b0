"""The names of all attributes, and the readings of instruments that need more than one expression."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from enricher.stats.histogram import Histogram
from enricher.stats.snapshot import WorkerState
from enricher.telemetry.observed import Observed, resident_bytes

Attributes = Mapping[str, str]
Numbers = Iterable[tuple[float, Attributes]]

SYSTEM = "messaging.system"
OPERATION = "messaging.operation.name"
DESTINATION = "messaging.destination.name"
PARTITION = "messaging.destination.partition.id"
GROUP = "messaging.consumer.group.name"
ERROR_TYPE = "error.type"
OUTCOME = "enricher.outcome"
STAGE = "enricher.stage"
TOKEN_KIND = "enricher.token.kind"  # noqa: S105  tokens of a text
REASON = "enricher.reason"
REBALANCE = "enricher.rebalance.kind"
STATE = "enricher.state"
GPU = "hw.name"
MODEL = (
    "enricher.model.name",
    "enricher.model.digest",
    "enricher.model.precision",
    "enricher.provider",
    "enricher.device",
    "service.version",
)


def one(value: float, **attributes: str) -> Numbers:
    """A single number, with these attributes if any."""
    return ((value, attributes),)


def by(name: str, numbers: Mapping[str, float]) -> Numbers:
    """Numbers that differ in the value of one attribute."""
    return tuple((number, {name: value}) for value, number in numbers.items())


def kafka(operation: str, **more: str) -> dict[str, str]:
    """The attributes of an operation on Kafka."""
    return {SYSTEM: "kafka", OPERATION: operation, **more}


def consumed(seen: Observed) -> Numbers:
    """Records read from the input topic."""
    return ((seen.counters.read, kafka("poll") | {DESTINATION: seen.worker.input_topic, GROUP: seen.worker.group}),)


def sent(seen: Observed) -> Numbers:
    """Records written and committed, by topic; tombstones count as records."""
    counters = seen.counters
    yield counters.records + counters.tombstones, kafka("send") | {DESTINATION: seen.worker.output_topic}
    yield counters.dead_letters.total(), kafka("send") | {DESTINATION: seen.worker.dead_letter_topic}


def dead_letters(seen: Observed) -> Iterator[tuple[float, Attributes]]:
    """Dead letters by stage and error type."""
    for reason, count in list(seen.counters.dead_letters.items()):
        stage, _, error_type = reason.partition(":")
        yield count, {STAGE: stage, ERROR_TYPE: error_type}


def articles(seen: Observed) -> Numbers:
    """Committed inputs by outcome."""
    counters = seen.counters
    return by(
        OUTCOME,
        {"enriched": counters.records, "tombstone": counters.tombstones, "dead_letter": counters.dead_letters.total()},
    )


def tokens(seen: Observed) -> Numbers:
    """Computed tokens: those of texts, and padding."""
    real, padded = seen.counters.real_tokens, seen.counters.padded_tokens
    return by(TOKEN_KIND, {"real": real, "padding": max(0, padded - real)})


def transactions(seen: Observed) -> Numbers:
    """Transactions by outcome; each failed one led to a recovery."""
    return by(OUTCOME, {"committed": seen.counters.transactions, "failed": seen.counters.recoveries})


def producers(seen: Observed) -> Numbers:
    """Producers that replaced another one, by reason."""
    return by(REASON, {"slow": seen.counters.producers_renewed, "recovery": seen.counters.recoveries})


def rebalances(seen: Observed) -> Numbers:
    """Rebalance callbacks by kind."""
    return by(REBALANCE, {kind: seen.counters.rebalances[kind] for kind in ("assigned", "revoked", "lost")})


def lags(seen: Observed) -> Numbers:
    """Lag by partition."""
    for partition, lag in seen.snapshot().lags.items():
        yield lag, {DESTINATION: partition.topic, PARTITION: str(partition.number)}


def topic_partitions(seen: Observed) -> Numbers:
    """Number of partitions of each topic, if known."""
    for topic, count in seen.snapshot().connection.topic_partitions.items():
        yield count, {DESTINATION: topic}


def unstable_offsets(seen: Observed) -> Numbers:
    """Offsets after the last stable one, by partition."""
    for partition, unstable in seen.snapshot().unstable.items():
        yield unstable.offsets, {DESTINATION: partition.topic, PARTITION: str(partition.number)}


def unstable_ages(seen: Observed) -> Numbers:
    """Seconds since the last stable offset moved, by partition."""
    for partition, unstable in seen.snapshot().unstable.items():
        yield unstable.age_s, {DESTINATION: partition.topic, PARTITION: str(partition.number)}


def states(seen: Observed) -> Numbers:
    """Every state, 1 for the current one."""
    return states_of(seen.snapshot().state)


def states_of(now: WorkerState) -> Numbers:
    """Every state, 1 for the one given, 0 for the others."""
    return by(STATE, {state.value: float(state is now) for state in WorkerState})


def model(seen: Observed) -> Numbers:
    """1, with the model, its precision and its device as attributes."""
    model = seen.model
    values = (model.name, model.digest, model.precision, model.provider, model.device, seen.worker.version)
    return ((1.0, dict(zip(MODEL, values, strict=True))),)


def brokers(seen: Observed) -> Numbers:
    """Number of connected brokers, if known."""
    connected = seen.snapshot().connection.brokers
    return () if connected is None else one(connected)


def resident(_seen: Observed) -> Numbers:
    """Resident memory, if the system reports it."""
    in_ram = resident_bytes()
    return () if in_ram is None else one(in_ram)


def transaction_time(seen: Observed) -> tuple[Histogram, Attributes]:
    """Durations of transactions, in seconds."""
    return seen.counters.transaction_s, kafka("commit") | {GROUP: seen.worker.group}


def process_time(seen: Observed) -> tuple[Histogram, Attributes]:
    """Seconds from an article's arrival to its commit."""
    return seen.counters.process_s, kafka("process") | {DESTINATION: seen.worker.input_topic, GROUP: seen.worker.group}
