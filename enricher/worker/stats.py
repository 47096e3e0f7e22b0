"""The counts of the worker, and its state at one moment: data and arithmetic only.

The loop and the sink count on the loop's thread; `worker/loop/snapshot.py` fills in the snapshot. Telemetry and health
export both.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from enum import Enum
from types import MappingProxyType
from typing import Any

from enricher.worker.records import (
    Batch,
    DeadLetter,
    EnrichedRecord,
    Outcome,
    Partition,
    Skipped,
    Ticket,
    Tombstone,
    reason_of,
)

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
"""Upper bounds that OpenTelemetry's messaging conventions recommend for durations."""

WAITS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 1.0, 2.5)
"""Upper bounds for waits that are about as long as a batch takes."""

LATENCIES_S = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0, 3600.0)
"""Upper bounds from a fresh article to one that waited for an hour. The service level objective is one of them."""

RATIOS = (0.1, 0.25, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0)


@dataclass(slots=True)
class Histogram:
    """Counts per bucket: bucket `i` counts values in `(bounds[i - 1], bounds[i]]`, the last one values above all bounds.

    Adding a value costs one bisection. Written by one thread. Other threads may read it meanwhile; a sum and a count read
    together may differ by one value.
    """

    bounds: Sequence[float]
    counts: list[int] = field(default_factory=list)
    sum: float = 0.0

    def __post_init__(self) -> None:
        self.counts = self.counts or [0] * (len(self.bounds) + 1)

    def add(self, value: float) -> None:
        """Add one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    @property
    def count(self) -> int:
        """The number of values."""
        return sum(self.counts)

    def quantile(self, share: float) -> float | None:
        """The value that `share` of all values (0 to 1) do not exceed, interpolated within a bucket; None without values."""
        rank = share * self.count
        below, lower = 0, 0.0
        for upper, count in zip(self.bounds, self.counts, strict=False):
            if count and below + count >= rank:
                return lower + (upper - lower) * max(0.0, rank - below) / count
            below, lower = below + count, upper
        return self.bounds[-1] if below < self.count else None


MOST_LABELS = 64
"""The most labels of a task, or of an outcome, that are counted by name, because each is a time series."""
OTHER = "other"


@dataclass(slots=True)
class Counters:
    """Counts since the start of the process. `records`, `tombstones` and `dead_letters` count committed outputs."""

    read: int = 0
    repeated: int = 0
    """Records among `read` that this process had read before and then forgotten, as in a recovery."""
    records: int = 0
    entities: int = 0
    tombstones: int = 0
    skipped: int = 0
    """Committed articles that `articles.transform` wanted no output for."""
    dropped_fields: Counter[str] = field(default_factory=Counter)
    """Optional fields of committed articles that were wrong and dropped, by name."""
    dead_letters: Counter[str] = field(default_factory=Counter)
    """Counts by `stage:error_type`."""
    dead_letter_reasons: Counter[str] = field(default_factory=Counter)
    """The counts of `dead_letters` by `stage:reason`; `records.reasons` bounds how many there are."""
    windows: int = 0
    batches: int = 0
    real_tokens: int = 0
    padded_tokens: int = 0
    out_of_memory: int = 0
    """Batches that ran out of device memory and were run in parts."""
    transactions: int = 0
    recoveries: int = 0
    forgotten: int = 0
    producers_renewed: int = 0
    transactions_repeated: int = 0
    """Transactions that were aborted because the group's generation had changed, and made again."""
    rebalances: Counter[str] = field(default_factory=Counter)
    """Counts by kind: assigned, revoked, lost."""
    isolations: int = 0
    """Partitions whose articles were processed one at a time, because processes had died at their offset."""
    tasks: dict[str, Counter[str]] = field(default_factory=dict)
    """Committed articles by task and outcome; empty without tasks in the settings. Outcomes: ran, skipped (not in its
    languages), failed (the model made them dead letters)."""
    without_task: Counter[str] = field(default_factory=Counter)
    """Committed articles that no task was for, by reason: `other_language`, or `no_language` if they name none."""
    unmeasured: int = 0
    """Committed articles in languages that a model which answered them was not measured in."""
    labels: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Committed entities and classes, by task and label. Without tasks in the settings, the task is `ner`."""
    links: Counter[tuple[str, str]] = field(default_factory=Counter, repr=False)
    """Entities that were looked up in the catalogue, by outcome (matched, ambiguous, unmatched, found) and label."""
    catalogue_modified_s: float | None = None  # when its newest file was written, since the epoch; None without one
    catalogue_refused: bool = False  # a newer version of the catalogue is wrong, and not in use
    transform_s: dict[str, float] = field(default_factory=dict)
    """Seconds in a team's own functions, by the group of the setting that names them: `articles`, `output`."""
    first_read_s: float | None = None
    last_commit_s: float | None = None
    batch_fill: Histogram = field(default_factory=lambda: Histogram(RATIOS))
    """Computed tokens of a batch, divided by the budget of a batch."""
    batch_wait_s: Histogram = field(default_factory=lambda: Histogram(WAITS_S))
    """The time of a batch's oldest window from the tokenizer to the engine."""
    transaction_s: Histogram = field(default_factory=lambda: Histogram(SECONDS))
    recovery_s: Histogram = field(default_factory=lambda: Histogram(SECONDS))
    process_s: Histogram = field(default_factory=lambda: Histogram(SECONDS))
    """The time of an article from its arrival in this process to its commit."""
    latency_s: Histogram = field(default_factory=lambda: Histogram(LATENCIES_S))
    """The time of an article from its Kafka timestamp to its commit."""
    epoch_clock: Callable[[], float] = field(default=time.time, repr=False)
    _read_up_to: dict[Partition, int] = field(default_factory=dict, repr=False)

    @property
    def published(self) -> int:
        """Committed inputs: enriched records, tombstones, dead letters, and those that were skipped."""
        return self.records + self.tombstones + self.skipped + self.dead_letters.total()

    @property
    def padding_share(self) -> float:
        """Share of padding in the computed tokens, 0 to 1."""
        return 1 - self.real_tokens / self.padded_tokens if self.padded_tokens else 0.0

    @property
    def working_s(self) -> float:
        """Seconds from the first record read to the last commit, by the worker's clock."""
        if self.first_read_s is None or self.last_commit_s is None:
            return 0.0
        return self.last_commit_s - self.first_read_s

    def name_tasks(self, names: Sequence[str]) -> None:
        """Begin to count tasks, by their names."""
        self.tasks = {name: Counter() for name in names}

    def count_read(self, tickets: Sequence[Ticket], now_s: float) -> None:
        """Count records that arrived, in offset order per partition."""
        self.read += len(tickets)
        if tickets and self.first_read_s is None:
            self.first_read_s = now_s
        seen = self._read_up_to
        for ticket in tickets:
            raw = ticket.raw
            if raw.offset <= seen.get(raw.partition, -1):
                self.repeated += 1
            else:
                seen[raw.partition] = raw.offset

    def count_batch(self, batch: Batch, padded_tokens: int, budget_tokens: int, now_s: float) -> None:
        """Count a batch that goes to the engine, which computes `padded_tokens` for it, of at most `budget_tokens`."""
        real_tokens = batch.real_tokens
        self.batches += 1
        self.windows += len(batch.windows)
        self.real_tokens += real_tokens
        self.padded_tokens += padded_tokens
        self.batch_fill.add(padded_tokens / budget_tokens)
        self.batch_wait_s.add(now_s - min([window.arrived_s for window in batch.windows]))

    def count_published(
        self,
        tickets: Sequence[Ticket],
        began_s: float,
        now_s: float,
        substitutes: Mapping[Ticket, DeadLetter] = MappingProxyType({}),
    ) -> None:
        """Count a committed transaction with these tickets. `substitutes` were written instead of their outcomes."""
        self.transactions += 1
        self.last_commit_s = now_s
        self.transaction_s.add(now_s - began_s)
        epoch_s, process_s, latency_s = self.epoch_clock(), self.process_s, self.latency_s
        for ticket in tickets:
            self._count_outcome(substitutes.get(ticket, ticket.outcome))
            self.unmeasured += ticket.unmeasured
            if self.tasks:
                self._count_tasks(ticket)
            process_s.add(now_s - ticket.arrived_s)
            if ticket.raw.timestamp_s is not None:
                # Not negative, if the publisher's clock is ahead: a sum that decreases would look like a restart.
                latency_s.add(max(0.0, epoch_s - ticket.raw.timestamp_s))

    def count_links(self, counts: Mapping[tuple[str, str], int]) -> None:
        """Count the entities of a record that were looked up in the catalogue, by label and outcome."""
        for (label, outcome), count in counts.items():
            _count_label(self.links, (outcome, label), count)

    def as_dict(self) -> dict[str, Any]:
        """A copy of all counts, as `--summary` writes them."""
        derived: dict[str, Any] = {
            "published": self.published,
            "padding_share": self.padding_share,
            "working_s": self.working_s,
        }
        derived |= {
            "tasks": {name: dict(outcomes) for name, outcomes in self.tasks.items()},
            "labels": _by_task(self.labels),
            "links": _by_task(self.links),
        }
        return {each.name: _copy(getattr(self, each.name)) for each in fields(self) if each.repr} | derived

    def _count_outcome(self, outcome: Outcome | None) -> None:
        match outcome:
            case EnrichedRecord(article=article, entities=entities, labels=labels):
                self.records += 1
                self.entities += len(entities)
                if article.dropped:
                    self.dropped_fields.update(article.dropped)
                for key, count in labels.items():
                    _count_label(self.labels, key, count)
            case Tombstone():
                self.tombstones += 1
            case Skipped():
                self.skipped += 1
            case DeadLetter(stage=stage, error_type=error_type, message=message):
                self.dead_letters[f"{stage}:{error_type}"] += 1
                self.dead_letter_reasons[f"{stage}:{reason_of(stage, error_type, message)}"] += 1

    def _count_tasks(self, ticket: Ticket) -> None:
        match ticket.outcome:
            case EnrichedRecord(article=article, tasks=reports):
                if all(report.coverage is None for report in reports):
                    self.without_task["other_language" if (article.language or "").strip() else "no_language"] += 1
                for report in reports:
                    self.tasks[report.task.name]["skipped" if report.coverage is None else "ran"] += 1
            case DeadLetter(stage="tokenize" | "inference") if ticket.article is not None:
                for outcomes in self.tasks.values():
                    outcomes["failed"] += 1


def _count_label(counts: Counter[tuple[str, str]], key: tuple[str, str], count: int) -> None:
    """Count a label, the second part of the key; under `OTHER` if it is new and there are `MOST_LABELS` of the first part.

    The first labels keep their names, so that no number of a counter decreases.
    """
    if key not in counts and sum(first == key[0] for first, _ in counts) >= MOST_LABELS:
        key = key[0], OTHER
    counts[key] += count


def _copy(value: Any) -> Any:  # noqa: ANN401  the value of any field
    if isinstance(value, Histogram):
        return asdict(value)
    # dataclasses.asdict would count the items of a Counter.
    return dict(value) if isinstance(value, Counter) else value


def _by_task(labels: Mapping[tuple[str, str], int]) -> dict[str, dict[str, int]]:
    """The counts by the first part of their keys, then by the second, because keys in JSON are strings."""
    found: dict[str, dict[str, int]] = {}
    for (task, label), count in dict(labels).items():
        found.setdefault(task, {})[label] = count
    return found


class WorkerState(Enum):
    """The phase of a worker's life."""

    STARTING = "starting"
    """It loads the model or connects with the brokers."""
    JOINING = "joining"
    """It has asked to join the group and is not a member yet."""
    WORKING = "working"
    RECOVERING = "recovering"
    """It recovers from a failed transaction; the broker may be away."""
    DRAINING = "draining"
    """It finishes its batches and ends."""


@dataclass(frozen=True, slots=True)
class Unstable:
    """The offsets after the last stable offset: an open transaction of a publisher hides them from consumers."""

    offsets: int = 0
    """From the last stable offset to the end offset."""
    age_s: float = 0.0
    """Seconds for which the last stable offset has not moved, while the end offset is higher."""


@dataclass(frozen=True, slots=True)
class Connection:
    """The state of the source's connection; the defaults are those of a source without a broker."""

    joined: bool = True
    """Whether the worker is a member of the group."""
    brokers: int | None = None
    """Number of connected brokers; None while unknown."""
    away_s: float = 0.0
    """Seconds without a connected broker."""
    ends: Mapping[Partition, int] = field(default_factory=dict)
    """The offset after the last one that may be read, for each partition where it is known."""
    starts: Mapping[Partition, int] = field(default_factory=dict)
    """The offset at which reading began, for each assigned partition."""
    topic_partitions: Mapping[str, int] = field(default_factory=dict)
    """The number of partitions of each topic."""
    silent_s: float = 0.0
    """Seconds without a record from a partition that has more to read; the longest of several."""
    unstable: Mapping[Partition, Unstable] = field(default_factory=dict)
    """The offsets that are not stable, for each partition that is being fetched."""


REQUEST_OUTCOMES = ("found", "unknown", "unusable", "unavailable", "given_up", "changed")
"""How a request for a schema ends."""


@dataclass(frozen=True, slots=True)
class SchemaState:
    """The requests for schemas, and whether the registry answers."""

    requests: Mapping[str, int] = field(default_factory=dict)
    """The number of requests since the start, by outcome."""
    away_s: float = 0.0
    """Seconds since nobody has answered about a schema that articles wait for; 0 if there is no such schema."""
    wanted: int = 0
    """Schemas that articles wait for."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state of a worker. Its fields are read one after another while the loop goes on, so not at one instant."""

    state: WorkerState
    connection: Connection
    partitions: int
    lags: Mapping[Partition, int]
    """Offsets between the committable one and the end, for each assigned partition where both are known."""
    unstable: Mapping[Partition, Unstable]
    """The offsets that open transactions hold back, for each assigned partition where that is known."""
    oldest_age_s: float
    """Age of the oldest record known to be unprocessed, by its Kafka timestamp; 0 without one.

    At least the time since brokers stopped answering: a record may have been published right after that."""
    in_flight_articles: int
    in_flight_bytes: int
    held_back_articles: int
    """Finished articles that wait for an earlier offset of their partition."""
    queued_windows: int
    queued_tokens: int
    budget_tokens: int
    concurrency: int
    engine_busy_s: float
    """Seconds of runs since the start, summed over the threads."""
    engine_starved_s: float
    """Seconds since the start in which threads had no work despite a backlog, summed over the threads."""
    turn_age_s: float
    """Seconds since the current turn of the loop began."""
    schemas: SchemaState | None = None
    """The state of the registry; None if articles need no schemas."""
    waiting_articles: int = 0
    """Articles that wait for their schema."""
    waiting: Mapping[Partition, int] = field(default_factory=dict)
    """Articles that wait for their schema, for each partition that has any."""
    dead_letter_limits: Mapping[str, float] = field(default_factory=dict)
    """How much of each dead-letter limit is used up, 0 to 1, by the limit's name; only limits that are set."""
