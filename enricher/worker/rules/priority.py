"""Several input topics in the order of their priority: while one has a backlog, those after it are held.

A topic has a backlog once records of it have been waiting to be read for `BACKLOG_S`: fewer than the worker can take are no
reason, because each hold makes the client drop what it has fetched, and it fetches it again. So a hold lasts for
`SHORTEST_S`. After `LONGEST_S` it ends for a moment, so that a topic that never has to wait stops no other for ever.

Nothing here reads a clock.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

BACKLOG_S = 0.5
"""A topic that is behind for so long has a backlog: one that keeps up is behind for milliseconds."""
SHORTEST_S = 1.0
"""How long later topics are held at least: many times longer than fetching their next records takes."""
LONGEST_S = 60.0
"""How long later topics are held at most; then they are read for `BACKLOG_S`, which fills what may be in flight."""


@dataclass(slots=True)
class _Backlog:
    """One topic before others. `behind_s`, `holds_s`: since when it has had records to read, and has held the others."""

    behind_s: float | None = None
    holds_s: float | None = None

    def holds(self, *, behind: bool, now_s: float) -> bool:
        """Whether it holds later topics from now on."""
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


class Priority:
    """`topics`: the first has the highest priority."""

    def __init__(self, topics: Sequence[str]) -> None:
        self._topics = topics
        self._backlogs = {topic: _Backlog() for topic in topics[:-1]}

    def to_hold(self, behind: Collection[str], now_s: float) -> Collection[str]:
        """The topics to hold now. `behind`: those with records that this worker may read and has not read."""
        holding = [topic for topic, each in self._backlogs.items() if each.holds(behind=topic in behind, now_s=now_s)]
        return self._topics[self._topics.index(holding[0]) + 1 :] if holding else ()
