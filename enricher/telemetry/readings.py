"""The names of all attributes, and the readings of instruments that need more than one expression."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from enricher.records import Partition
from enricher.stats.snapshot import WorkerState
from enricher.telemetry.observed import Observed

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


def source(seen: Observed) -> dict[str, str]:
    """The attributes of reading the input topic."""
    return {DESTINATION: seen.worker.input_topic, GROUP: seen.worker.group}


def by_partition(numbers: Mapping[Partition, float]) -> Numbers:
    """Numbers by topic and partition."""
    return [(number, {DESTINATION: each.topic, PARTITION: str(each.number)}) for each, number in numbers.items()]


def known(value: float | None) -> Numbers:
    """A single number, or none if it is not known."""
    return () if value is None else one(value)


def sent(seen: Observed) -> Numbers:
    """Records written and committed, by topic; tombstones count as records."""
    counters = seen.counters
    yield counters.records + counters.tombstones, kafka("send", **{DESTINATION: seen.worker.output_topic})
    yield counters.dead_letters.total(), kafka("send", **{DESTINATION: seen.worker.dead_letter_topic})


def dead_letters(seen: Observed) -> Numbers:
    """Dead letters by stage and error type."""
    for reason, count in list(seen.counters.dead_letters.items()):
        stage, _, error_type = reason.partition(":")
        yield count, {STAGE: stage, ERROR_TYPE: error_type}


def articles(seen: Observed) -> Numbers:
    """Committed inputs by outcome."""
    counters = seen.counters
    dead_letters = counters.dead_letters.total()
    return by(OUTCOME, {"enriched": counters.records, "tombstone": counters.tombstones, "dead_letter": dead_letters})


def tokens(seen: Observed) -> Numbers:
    """Computed tokens: those of texts, and padding."""
    real, padded = seen.counters.real_tokens, seen.counters.padded_tokens
    return by(TOKEN_KIND, {"real": real, "padding": max(0, padded - real)})


def states_of(now: WorkerState) -> Numbers:
    """Every state, 1 for the one given, 0 for the others."""
    return by(STATE, {state.value: float(state is now) for state in WorkerState})


def model(seen: Observed) -> Numbers:
    """1, with the model, its precision and its device as attributes."""
    model = seen.model
    values = (model.name, model.digest, model.precision, model.provider, model.device, seen.worker.version)
    return one(1.0, **dict(zip(MODEL, values, strict=True)))


def gpus(seen: Observed, field: str) -> Numbers:
    """One field of `GpuUse`, by GPU."""
    return [(getattr(gpu, field), {GPU: gpu.name}) for gpu in seen.gpus()]
