"""The values that instruments read: numbers or histograms, each with the values of the attributes, in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from enricher.worker.records import Partition
from enricher.worker.stats.counters import TaskCounts
from enricher.worker.stats.histogram import Histogram
from enricher.worker.stats.snapshot import REQUEST_OUTCOMES, Snapshot, WorkerState
from enricher.worker.telemetry.label_shares import bound_labels
from enricher.worker.telemetry.observed import Observed

TASK_OUTCOMES = ("ran", "skipped", "failed")
Numbers = Iterable[tuple[float | Histogram, tuple[str, ...]]]


def one(number: float | Histogram | None, *values: str) -> Numbers:
    """A single number, or none if it is not known."""
    return () if number is None else ((number, values),)


def by(numbers: Mapping[str, float]) -> Numbers:
    """Numbers by the value of their only attribute."""
    return [(number, (value,)) for value, number in numbers.items()]


def by_partition(numbers: Mapping[Partition, float]) -> Numbers:
    """Numbers by topic and partition."""
    return [(number, (each.topic, str(each.number))) for each, number in numbers.items()]


def sent_messages(seen: Observed) -> Numbers:
    """Records written and committed, by topic; tombstones count as records."""
    counters = seen.counters
    yield counters.records + counters.tombstones, ("kafka", "send", seen.worker.output_topic)
    yield counters.dead_letters.total(), ("kafka", "send", seen.worker.dead_letter_topic)


def dead_letters(seen: Observed) -> Numbers:
    """Dead letters by stage and error type."""
    for reason, count in list(seen.counters.dead_letters.items()):
        stage, _, error_type = reason.partition(":")
        yield count, (stage, error_type)


def articles(seen: Observed) -> Numbers:
    """Committed inputs by outcome."""
    counters = seen.counters
    dead_letters = counters.dead_letters.total()
    return by({"enriched": counters.records, "tombstone": counters.tombstones, "dead_letter": dead_letters})


def tokens(seen: Observed) -> Numbers:
    """Computed tokens: those of texts, and padding."""
    real, padded = seen.counters.real_tokens, seen.counters.padded_tokens
    return by({"real": real, "padding": max(0, padded - real)})


def by_task(seen: Observed, number: Callable[[TaskCounts], float]) -> Numbers:
    """A number of each task; none for a worker without tasks in its settings."""
    return by({name: number(counts) for name, counts in seen.counters.tasks.copy().items()})


def task_articles(seen: Observed) -> Numbers:
    """Articles by task and outcome."""
    for name, counts in seen.counters.tasks.copy().items():
        for outcome in TASK_OUTCOMES:
            yield counts.outcomes[outcome], (name, outcome)


def without_task(seen: Observed) -> Numbers:
    """Articles that no task was for, by reason; none for a worker without tasks in its settings."""
    counters = seen.counters
    return by(
        {reason: counters.without_task[reason] for reason in ("other_language", "no_language")}
        if counters.tasks
        else {}
    )


def labels(seen: Observed) -> Numbers:
    """Labels found, by task and label."""
    return [(count, pair) for pair, count in bound_labels(seen.counters.labels.copy()).items()]


def waiting_articles(now: Snapshot) -> Numbers:
    """Articles that wait for their schema; no number if articles need no schemas."""
    return one(now.waiting_articles if now.schemas else None)


def waiting_partitions(now: Snapshot) -> Numbers:
    """Partitions with articles that wait for their schema; no number if articles need no schemas."""
    return one(len(now.waiting) if now.schemas else None)


def requests(now: Snapshot) -> Numbers:
    """Requests for schemas by outcome, also outcomes that have not occurred."""
    return by({outcome: now.schemas.requests.get(outcome, 0) for outcome in REQUEST_OUTCOMES} if now.schemas else {})


def registry_away(now: Snapshot) -> Numbers:
    """Seconds for which a schema could not be fetched."""
    return one(now.schemas.away_s if now.schemas else None)


def states_of(now: WorkerState) -> Numbers:
    """Every state, 1 for the one given, 0 for the others."""
    return by({state.value: float(state is now) for state in WorkerState})


def model_info(seen: Observed) -> Numbers:
    """1, with the model, its precision and its device as attributes."""
    model = seen.model
    return one(1.0, model.name, model.digest, model.precision, model.provider, model.device, seen.worker.version)
