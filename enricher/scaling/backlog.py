"""What is unprocessed at one moment, partition by partition. Plain data: asks nobody."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class PartitionBacklog:
    """One partition of the input topic, as the group stands in it. `end` is the next offset to be written."""

    number: int
    committed: int | None
    """Where the group would go on; None where it has no offset: it never committed, or it has expired."""
    start: int
    """Where a worker that starts now begins to read."""
    end: int
    """End of what a worker may read: the last stable offset."""
    behind: int
    """Offsets from the first unprocessed record to the end; 0 where there is none: transaction markers are no records."""
    age_s: float | None
    """Age of the first unprocessed record; 0 where there is none or its time is to come, None where it has no time."""
    hidden: int = 0
    """Offsets behind `end`: transactions that are still open hold them back."""

    @property
    def waits(self) -> bool:
        """True where there is something to do."""
        return self.behind > 0

    @property
    def remark(self) -> str:
        """What a person should know about it; empty where all is usual."""
        said = []
        if self.committed is None:
            said.append(f"no committed offset: a worker starts at {self.start}")
        elif self.committed < self.start:
            said.append(f"{self.start - self.committed} offsets were deleted unread")
        elif self.committed > self.start:
            said.append(
                "the committed offset lies behind the end: the topic was made anew, a worker starts at its beginning"
            )
        if self.hidden:
            said.append(f"{self.hidden} offsets in transactions that are still open")
        return "; ".join(said)


@dataclass(frozen=True, slots=True)
class Backlog:
    """All partitions at one moment. `workers`: members of the group."""

    group: str
    topic: str
    partitions: Sequence[PartitionBacklog]
    workers: int

    @property
    def behind(self) -> int:
        """Of all partitions together."""
        return sum(partition.behind for partition in self.partitions)

    @property
    def waiting_partitions(self) -> int:
        """How many have something to do."""
        return sum(partition.waits for partition in self.partitions)

    @property
    def age_s(self) -> float | None:
        """Age of the oldest unprocessed record, 0 where there is none; None where one has no time."""
        ages = [partition.age_s for partition in self.partitions]
        return None if None in ages else max((age_s for age_s in ages if age_s is not None), default=0.0)

    @property
    def known_age_s(self) -> float | None:
        """Age of the oldest unprocessed record whose time is known; None where records wait and none has one."""
        known = [each.age_s for each in self.partitions if each.waits and each.age_s is not None]
        return max(known) if known else self.age_s

    def as_json(self) -> dict[str, object]:
        """For machines; names as in this class."""
        return {
            "group": self.group,
            "topic": self.topic,
            "behind": self.behind,
            "age_s": self.age_s,
            "waiting_partitions": self.waiting_partitions,
            "workers": self.workers,
            "partitions": [asdict(partition) | {"remark": partition.remark} for partition in self.partitions],
        }
