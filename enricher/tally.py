"""What the worker has done so far, in numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from enricher.records import Batch, DeadLetter, EnrichedRecord, InFlight, Tombstone


@dataclass(slots=True)
class Tally:
    """Counts since the start of this process. `records`, `tombstones` and `dead_letters` count what was committed."""

    read: int = 0
    records: int = 0
    tombstones: int = 0
    dead_letters: Counter[str] = field(default_factory=Counter)
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
    first_read_s: float | None = None
    last_commit_s: float | None = None

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

    def count_read(self, records: int, now_s: float) -> None:
        """Records arrived."""
        self.read += records
        if records and self.first_read_s is None:
            self.first_read_s = now_s

    def count_batch(self, batch: Batch, padded_tokens: int) -> None:
        """A batch went to the model, which computes `padded_tokens` for it."""
        self.batches += 1
        self.windows += len(batch.windows)
        self.real_tokens += batch.real_tokens
        self.padded_tokens += padded_tokens

    def count_published(self, tickets: Sequence[InFlight], now_s: float) -> None:
        """A transaction with these tickets was committed."""
        self.transactions += 1
        self.last_commit_s = now_s
        for ticket in tickets:
            match ticket.outcome:
                case EnrichedRecord():
                    self.records += 1
                case Tombstone():
                    self.tombstones += 1
                case DeadLetter(stage=stage, error_type=error_type):
                    self.dead_letters[f"{stage}:{error_type}"] += 1

    def as_dict(self) -> dict[str, Any]:
        """For machines."""
        derived = {"published": self.published, "padding_share": self.padding_share, "working_s": self.working_s}
        return asdict(self) | derived
