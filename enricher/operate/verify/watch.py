"""Committed offsets over time must never go back. Pure; `waiting` takes the samples.

For a topic that was deleted and created again they rightly begin at 0. Kafka removes the offsets of a deleted topic, so a
missing offset is judged when there is one again, or at the end, by the topic's id.
"""

from __future__ import annotations

from dataclasses import dataclass

from enricher.operate.verify.committed import Committed, CommittedOffset, same_topic
from enricher.operate.verify.findings import Check, Place


@dataclass(frozen=True, slots=True)
class Fall:
    """A committed offset that went back; `after` is None if it disappeared."""

    partition: int
    before: int
    after: int | None

    def __str__(self) -> str:
        return f"partition {self.partition}: from {self.before} back to {self.after}"


class OffsetWatch:
    """Takes samples of a group's committed offsets in one topic, and fails `check` for each that went back."""

    def __init__(self, topic: str, check: Check) -> None:
        self.check = check
        self.samples = 0
        self._topic = topic
        self._last: dict[int, CommittedOffset] = {}
        self._gone: set[int] = set()

    def note(self, committed: Committed) -> list[Fall]:
        """Take the next sample; returns what went back. Counts every partition that has an earlier sample as checked."""
        self.samples += 1
        falls = []
        for partition, place in committed.items():
            self.check.checked += partition in self._last
            if place is not None:
                falls += self._compare(partition, place)
            elif partition in self._last:
                self._gone.add(partition)
        return falls

    def finish(self, topic_id: str | None) -> list[Fall]:
        """Judge the offsets that are still missing, by the topic's id now (None: unknown); returns what went back."""
        gone, self._gone = self._gone, set()
        lost = {number: self._last.pop(number) for number in sorted(gone)}
        return [
            self._fall(number, last.offset, None)
            for number, last in lost.items()
            if same_topic(last.topic_id, topic_id)
        ]

    def _compare(self, partition: int, place: CommittedOffset) -> list[Fall]:
        last, self._last[partition] = self._last.get(partition), place
        was_gone = partition in self._gone
        self._gone.discard(partition)
        if last is None or not same_topic(last.topic_id, place.topic_id):
            return []
        if was_gone:
            return [self._fall(partition, last.offset, None)]
        return [self._fall(partition, last.offset, place.offset)] if place.offset < last.offset else []

    def _fall(self, partition: int, before: int, after: int | None) -> Fall:
        self.check.fail(Place(self._topic, partition, after or 0))
        return Fall(partition, before, after)
