"""What the instruments read that takes more than a word, and the names of all attributes."""

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
    """A number without attributes, or with these."""
    return ((value, attributes),)


def by(name: str, numbers: Mapping[str, float]) -> Numbers:
    """Numbers by the values of one attribute."""
    return tuple((number, {name: value}) for value, number in numbers.items())


def kafka(operation: str, **more: str) -> dict[str, str]:
    """The attributes of an operation on Kafka."""
    return {SYSTEM: "kafka", OPERATION: operation, **more}


def consumed(seen: Observed) -> Numbers:
    """Records read."""
    return ((seen.counters.read, kafka("poll") | {DESTINATION: seen.input_topic, GROUP: seen.group}),)


def sent(seen: Observed) -> Numbers:
    """Records written, by topic."""
    counters = seen.counters
    yield counters.records + counters.tombstones, kafka("send") | {DESTINATION: seen.output_topic}
    yield counters.dead_letters.total(), kafka("send") | {DESTINATION: seen.dead_letter_topic}


def dead_letters(seen: Observed) -> Iterator[tuple[float, Attributes]]:
    """Dead letters, by stage and type."""
    for reason, count in list(seen.counters.dead_letters.items()):
        stage, _, error_type = reason.partition(":")
        yield count, {STAGE: stage, ERROR_TYPE: error_type}


def articles(seen: Observed) -> Numbers:
    """Inputs, by outcome."""
    counters = seen.counters
    return by(
        OUTCOME,
        {"enriched": counters.records, "tombstone": counters.tombstones, "dead_letter": counters.dead_letters.total()},
    )


def tokens(seen: Observed) -> Numbers:
    """Tokens, real and padding."""
    real, padded = seen.counters.real_tokens, seen.counters.padded_tokens
    return by(TOKEN_KIND, {"real": real, "padding": max(0, padded - real)})


def transactions(seen: Observed) -> Numbers:
    """Transactions, by outcome."""
    return by(OUTCOME, {"committed": seen.counters.transactions, "failed": seen.counters.recoveries})


def producers(seen: Observed) -> Numbers:
    """Producers made anew, by reason."""
    return by(REASON, {"slow": seen.counters.producers_renewed, "recovery": seen.counters.recoveries})


def rebalances(seen: Observed) -> Numbers:
    """What happened to partitions."""
    return by(REBALANCE, {kind: seen.counters.rebalances[kind] for kind in ("assigned", "revoked", "lost")})


def lags(seen: Observed) -> Numbers:
    """How far behind, by partition."""
    for partition, lag in seen.snapshot().lags.items():
        yield lag, {DESTINATION: partition.topic, PARTITION: str(partition.number)}


def topic_partitions(seen: Observed) -> Numbers:
    """How many partitions each topic has, where that is known."""
    for topic, count in seen.snapshot().connection.topic_partitions.items():
        yield count, {DESTINATION: topic}


def unstable_offsets(seen: Observed) -> Numbers:
    """What an open transaction of the publisher holds back, by partition."""
    for partition, unstable in seen.snapshot().unstable.items():
        yield unstable.offsets, {DESTINATION: partition.topic, PARTITION: str(partition.number)}


def unstable_ages(seen: Observed) -> Numbers:
    """For how long it has, by partition."""
    for partition, unstable in seen.snapshot().unstable.items():
        yield unstable.age_s, {DESTINATION: partition.topic, PARTITION: str(partition.number)}


def states(seen: Observed) -> Numbers:
    """1 for the state that it is."""
    now = seen.snapshot().state
    return by(STATE, {state.value: float(state is now) for state in WorkerState})


def model(seen: Observed) -> Numbers:
    """1, with everything about the model."""
    model = seen.model
    values = (model.name, model.digest, model.precision, model.provider, model.device, seen.version)
    return ((1.0, dict(zip(MODEL, values, strict=True))),)


def brokers(seen: Observed) -> Numbers:
    """Connected brokers, where known."""
    connected = seen.snapshot().connection.brokers
    return () if connected is None else one(connected)


def resident(_seen: Observed) -> Numbers:
    """Memory, where the system says it."""
    in_ram = resident_bytes()
    return () if in_ram is None else one(in_ram)


def transaction_time(seen: Observed) -> tuple[Histogram, Attributes]:
    """Durations of transactions."""
    return seen.counters.transaction_s, kafka("commit") | {GROUP: seen.group}


def process_time(seen: Observed) -> tuple[Histogram, Attributes]:
    """Durations of articles."""
    return seen.counters.process_s, kafka("process") | {DESTINATION: seen.input_topic, GROUP: seen.group}
