"""The unprocessed records at one moment, per partition. Plain data, no I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class PartitionBacklog:
    """One partition of an input topic, and how far the group has come in it. Offsets, not records."""

    topic: str
    number: int
    committed: int | None
    """The group's offset here; None if it never committed one, or if that has expired."""
    start: int
    """The first offset that the partition still has, as Kafka's tools call it."""
    worker_start: int
    """The offset at which a worker that starts now begins."""
    end: int
    """The last stable offset: a worker may read up to here."""
    behind: int
    """Offsets from the first unprocessed record to the end; 0 if only transaction markers are left."""
    age_s: float | None
    """Age of the first unprocessed record: 0 if there is none or its timestamp lies ahead, None if it has no timestamp."""
    hidden: int = 0
    """Offsets at or after `end` that transactions which are still open hold back."""

    @property
    def waits(self) -> bool:
        """True if there is an unprocessed record."""
        return self.behind > 0

    @property
    def remark(self) -> str:
        """Says what is unusual about it, for people; empty if nothing is."""
        remarks = []
        if self.committed is None:
            remarks.append(
                f"no committed offset: a new group starts at {self.worker_start}; one that has outputs refuses"
            )
        elif self.committed < self.worker_start:
            remarks.append(f"{self.worker_start - self.committed} offsets were deleted unread")
        elif self.committed > self.worker_start:
            remarks.append(
                "the committed offset lies beyond the end: the topic was created again, a worker starts at its beginning"
            )
        if self.hidden:
            remarks.append(f"{self.hidden} offsets in transactions that are still open")
        return "; ".join(remarks)


@dataclass(frozen=True, slots=True)
class Backlog:
    """All partitions at one moment. `workers`: members of the group."""

    group: str
    topic: str
    """The input topic; several with commas between them."""
    partitions: Sequence[PartitionBacklog]
    workers: int

    @property
    def behind(self) -> int:
        """Sum over the partitions."""
        return sum(partition.behind for partition in self.partitions)

    @property
    def waiting_partitions(self) -> int:
        """How many partitions have an unprocessed record."""
        return sum(partition.waits for partition in self.partitions)

    @property
    def age_s(self) -> float | None:
        """Age of the oldest unprocessed record, 0 if there is none; None if one has no timestamp."""
        ages = [partition.age_s for partition in self.partitions]
        return None if None in ages else max((age_s for age_s in ages if age_s is not None), default=0.0)

    def as_json(self) -> dict[str, object]:
        """The object printed by `--json`; its keys are the names of the attributes."""
        return {
            "group": self.group,
            "topic": self.topic,
            "behind": self.behind,
            "age_s": self.age_s,
            "waiting_partitions": self.waiting_partitions,
            "workers": self.workers,
            "partitions": [asdict(partition) | {"remark": partition.remark} for partition in self.partitions],
        }
