"""Committed offsets over time: they must never go back. Pure; who samples, and when, is `sampling`'s.

Those of a topic that was deleted and created again begin at the beginning, by right. Kafka removes a deleted topic's
offsets, so one that is gone is judged when it is there again, or at the end, by the id of the topic.
"""

from __future__ import annotations

from dataclasses import dataclass

from enricher.verify.committed import Committed, CommittedOffset, same_topic
from enricher.verify.findings import Check, Place


@dataclass(frozen=True, slots=True)
class Fall:
    """A committed offset that was below the one before; `after` is None where it was gone."""

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
        self._last: dict[int, CommittedOffset] = {}
        self._gone: set[int] = set()

    def note(self, committed: Committed) -> list[Fall]:
        """A sample, later than all before it; returns what fell. Every partition with one to compare with is checked."""
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
        """Judge what is still gone, now that the topic's id is known (None: it is not); returns what fell."""
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
