"""What the worker has done so far, in numbers. Written by the loop's thread, read by any; exporters are telemetry's."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from types import MappingProxyType
from typing import Any

from enricher.records import Batch, DeadLetter, EnrichedRecord, Outcome, Partition, Ticket, Tombstone
from enricher.stats.histogram import LATENCIES_S, RATIOS, SECONDS, WAITS_S, Histogram


@dataclass(slots=True)
class Counters:
    """Counts since the start of this process. `records`, `tombstones` and `dead_letters` count what was committed."""

    read: int = 0
    repeated: int = 0
    """Of those, how many this process had read before: what forgetting costs."""
    records: int = 0
    entities: int = 0
    tombstones: int = 0
    dead_letters: Counter[str] = field(default_factory=Counter)
    """By `stage:error_type`."""
    windows: int = 0
    batches: int = 0
    real_tokens: int = 0
    padded_tokens: int = 0
    out_of_memory: int = 0
    """Batches that ran out of the device's memory and went through in parts."""
    transactions: int = 0
    recoveries: int = 0
    forgotten: int = 0
    producers_renewed: int = 0
    rebalances: Counter[str] = field(default_factory=Counter)
    """By what happened: assigned, revoked, lost."""
    isolations: int = 0
    """Partitions whose articles were taken one at a time, because processes had ended there."""
    first_read_s: float | None = None
    last_commit_s: float | None = None
    batch_fill: Histogram = field(default_factory=lambda: Histogram(RATIOS))
    """What the device computes for a batch over the budget of one."""
    batch_wait_s: Histogram = field(default_factory=lambda: Histogram(WAITS_S))
    """Of a batch's oldest window, from the tokenizer to the engine."""
    transaction_s: Histogram = field(default_factory=lambda: Histogram(SECONDS))
    recovery_s: Histogram = field(default_factory=lambda: Histogram(SECONDS))
    process_s: Histogram = field(default_factory=lambda: Histogram(SECONDS))
    """Of an article, from its arrival here to its commit."""
    latency_s: Histogram = field(default_factory=lambda: Histogram(LATENCIES_S))
    """Of an article, from its timestamp in Kafka to its commit."""
    epoch_clock: Callable[[], float] = field(default=time.time, repr=False)
    _read_up_to: dict[Partition, int] = field(default_factory=dict, repr=False)

    @property
    def published(self) -> int:
        """Inputs that are dealt with for good: enriched, passed through or dead-lettered, and committed."""
        return self.records + self.tombstones + self.dead_letters.total()

    @property
    def padding_share(self) -> float:
        """Share of the computed tokens that were padding, 0 to 1."""
        return 1 - self.real_tokens / self.padded_tokens if self.padded_tokens else 0.0

    @property
    def working_s(self) -> float:
        """Seconds from the first record read to the last commit, by the worker's clock."""
        if self.first_read_s is None or self.last_commit_s is None:
            return 0.0
        return self.last_commit_s - self.first_read_s

    def count_read(self, tickets: Sequence[Ticket], now_s: float) -> None:
        """Records arrived, in the order of their offsets per partition."""
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
        """A batch went to the model, which computes `padded_tokens` for it, of the `budget_tokens` that one may have."""
        self.batches += 1
        self.windows += len(batch.windows)
        self.real_tokens += batch.real_tokens
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
        """A transaction with these tickets was begun and committed. `substitutes` were written instead of outcomes."""
        self.transactions += 1
        self.last_commit_s = now_s
        self.transaction_s.add(now_s - began_s)
        epoch_s, process_s, latency_s = self.epoch_clock(), self.process_s, self.latency_s
        for ticket in tickets:
            self._count_outcome(substitutes.get(ticket, ticket.outcome))
            process_s.add(now_s - ticket.arrived_s)
            if ticket.raw.timestamp_s is not None:
                # A publisher's clock may be ahead of ours, and a sum that falls looks like a restart of this process.
                latency_s.add(max(0.0, epoch_s - ticket.raw.timestamp_s))

    def as_dict(self) -> dict[str, Any]:
        """For machines: a copy."""
        derived = {"published": self.published, "padding_share": self.padding_share, "working_s": self.working_s}
        return {each.name: _copied(getattr(self, each.name)) for each in fields(self) if each.repr} | derived

    def _count_outcome(self, outcome: Outcome | None) -> None:
        match outcome:
            case EnrichedRecord(entities=entities):
                self.records += 1
                self.entities += len(entities)
            case Tombstone():
                self.tombstones += 1
            case DeadLetter(stage=stage, error_type=error_type):
                self.dead_letters[f"{stage}:{error_type}"] += 1


def _copied(value: Any) -> Any:  # noqa: ANN401  whatever a field holds
    if isinstance(value, Histogram):
        return asdict(value)
    # `asdict` of the standard library would count the pairs of a Counter.
    return dict(value) if isinstance(value, Counter) else value
