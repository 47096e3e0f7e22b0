"""Committed offsets over time: they must never go back. Pure; who samples, and when, is `sampling`'s."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from enricher.verify.findings import Check, Place

Committed = Mapping[int, int | None]
"""The committed offset of each partition; None where there is none."""


@dataclass(frozen=True, slots=True)
class Fall:
    """A committed offset that was below the one before."""

    partition: int
    before: int
    after: int | None

    def __str__(self) -> str:
        return f"partition {self.partition}: from {self.before} back to {self.after}"


class OffsetWatch:
    """Takes samples of a group's committed offsets in one topic, and notes in `check` each that is below the one before."""

    def __init__(self, topic: str, check: Check) -> None:
        self.check = check
        self.samples = 0
        self._topic = topic
        self._last: dict[int, int] = {}

    def note(self, committed: Committed) -> list[Fall]:
        """A sample, later than all before it; returns what fell. Every partition with one to compare with is checked."""
        self.samples += 1
        falls = []
        for partition, offset in committed.items():
            last = self._last.get(partition)
            if last is not None:
                self.check.checked += 1
                if offset is None or offset < last:
                    self.check.fail(Place(self._topic, partition, offset or 0))
                    falls.append(Fall(partition, last, offset))
            if offset is not None:
                self._last[partition] = offset
        return falls
