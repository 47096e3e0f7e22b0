"""How many records may be read: at what rate, in how many calls of the client, and of which of several topics.

Nothing here reads a clock.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from enricher.worker.records import HEADER_BYTES, RawRecord

_MOST = 64
"""Records per call. The client keeps up to 100,000 headers of each (70 bytes in C): 450 MB if all are hostile."""
_CALL_BYTES = 64_000_000
"""The most bytes that a call's records may have, if all are as large as the largest recent record."""
_ROUNDING = 1e-9
"""An article passes even if this much of it is missing: times are rounded, and no clock shows so short a wait."""
BACKLOG_S = 0.5
"""A topic that is behind for so long has a backlog: a topic that keeps up is behind for milliseconds."""
SHORTEST_S = 1.0
"""How long later topics are held at least: many times longer than fetching their next records takes."""
LONGEST_S = 60.0
"""How long later topics are held at most; then they are read for `BACKLOG_S`, which fills what may be in flight."""


class RateLimit:
    """A token bucket: at most `per_s` articles in a second on average; 0 is no limit.

    `burst_s`: after a pause, the articles of this much time may pass at once, and one in any case.
    """

    def __init__(self, per_s: float, now_s: float, *, burst_s: float = 1.0) -> None:
        self._per_s = per_s
        self._most = max(1.0, per_s * burst_s)
        self._left = 1.0
        self._noted_s = now_s

    def allows(self, room: int, now_s: float) -> int:
        """How many of `room` articles may pass now."""
        return min(room, int(self._left_at(now_s) + _ROUNDING)) if self._per_s else room

    def count(self, articles: int, now_s: float) -> None:
        """Count articles that pass now."""
        if self._per_s:
            self._left, self._noted_s = self._left_at(now_s) - articles, now_s

    def wait_s(self, now_s: float) -> float | None:
        """Seconds until the next article may pass; None if there is no limit."""
        return max(0.0, 1.0 - self._left_at(now_s)) / self._per_s if self._per_s else None

    def _left_at(self, now_s: float) -> float:
        return min(self._most, self._left + (now_s - self._noted_s) * self._per_s)


class Portions:
    """How many records to request from the client in one call. Remembers the largest recent record.

    All records of a call are in memory at once, before their size is known: values are copied, and headers, which take two
    bytes in the topic, become objects. So a call requests few records, and fewer while records are large.
    """

    def __init__(self) -> None:
        self._largest_bytes = 1.0

    def of(self, wanted: int) -> int:
        """How many records to request if at most `wanted` may come."""
        return max(1, min(wanted, _MOST, int(_CALL_BYTES / self._largest_bytes)))

    def learn_from(self, records: list[RawRecord]) -> list[RawRecord]:
        """Learn from the records of one call and return them. A large record's weight halves with each smaller call."""
        self._largest_bytes = max(1.0, self._largest_bytes / 2, *map(_cost_bytes, records))
        return records


def _cost_bytes(record: RawRecord) -> int:
    omitted = record.omitted_headers
    return record.size_bytes + (omitted.size_bytes + HEADER_BYTES * omitted.count if omitted else 0)


class Priority:
    """Several input topics in the order of their priority: while one has a backlog, those after it are held.

    A topic has a backlog once records of it have been waiting to be read for `BACKLOG_S`. Records that the worker takes
    sooner hold nothing, because with each hold the client drops what it has fetched, and fetches it again. So a hold lasts
    for `SHORTEST_S` at least. After `LONGEST_S` it ends for a moment, so that a topic with a lasting backlog stops no other.

    `topics`: the first has the highest priority.
    """

    def __init__(self, topics: Sequence[str]) -> None:
        self._topics = topics
        self._backlogs = {topic: _Backlog() for topic in topics[:-1]}

    def to_hold(self, behind: Collection[str], now_s: float) -> Collection[str]:
        """The topics to hold now. `behind`: those with records that this worker may read and has not read."""
        holding = [topic for topic, each in self._backlogs.items() if each.holds(behind=topic in behind, now_s=now_s)]
        return self._topics[self._topics.index(holding[0]) + 1 :] if holding else ()


@dataclass(slots=True)
class _Backlog:
    """The backlog of a topic. `behind_s`, `holds_s`: since when it has had records to read, and has held later topics."""

    behind_s: float | None = None
    holds_s: float | None = None

    def holds(self, *, behind: bool, now_s: float) -> bool:
        """Whether the topic holds later ones from now on."""
        if not behind:
            self.behind_s = None
        elif self.behind_s is None:
            self.behind_s = now_s
        if self.holds_s is None:
            if self.behind_s is not None and now_s - self.behind_s >= BACKLOG_S:
                self.holds_s = now_s
        elif now_s - self.holds_s >= (LONGEST_S if behind else SHORTEST_S):
            self.behind_s = self.holds_s = None
        return self.holds_s is not None
