"""Speeds, from what was unprocessed at several moments: how much comes, and how much one worker does. Pure: time is given.

What a worker does can be told only while it is never idle: when at both ends of an interval every worker had something that
was waiting. The median of the last such intervals counts, so that one in which workers joined or left does no harm. Until
there was one, the most that a worker was ever seen to do is known to be possible, and a little more is assumed to be.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from statistics import median

from enricher.scaling.backlog import Backlog

_WINDOW_S = 60.0
"""What comes is averaged over so long: shorter follows chance, longer notices a rush too late."""
_MEASURE_S = 15.0
"""An interval in which a worker is measured is at least so long: many times its publish interval."""
_WAITED_S = 3.0
"""A record that waited for so long was waiting for a worker, and not for its batch or its transaction."""
_MEASURES = 7
_UNTRIED = 1.25
"""What a worker is assumed to do, of what it was seen to do without ever being full."""


@dataclass(frozen=True, slots=True)
class _Moment:
    at_s: float
    backlog: Backlog


@dataclass(slots=True)
class Rates:
    """Speeds of one group on one topic. Not safe for several threads."""

    _moments: deque[_Moment] = field(default_factory=deque)
    _measured_since: _Moment | None = None
    _full: deque[float] = field(default_factory=lambda: deque(maxlen=_MEASURES))
    _seen_per_s: float = 0.0

    def note(self, backlog: Backlog, now_s: float) -> None:
        """What was unprocessed at `now_s` (any clock that only goes forward)."""
        moment = _Moment(now_s, backlog)
        self._moments.append(moment)
        # One that is older stays, so that there are two however seldom somebody looks.
        while len(self._moments) > 2 and self._moments[1].at_s <= now_s - _WINDOW_S:
            self._moments.popleft()
        self._measure(moment)

    @property
    def arriving_per_s(self) -> float:
        """Records per second that came lately; after one look only, what waits by its age."""
        if not self._moments:
            return 0.0
        first, last = self._moments[0], self._moments[-1]
        if first.at_s < last.at_s:
            return _arrived(first.backlog, last.backlog) / (last.at_s - first.at_s)
        return last.backlog.behind / max(_WINDOW_S, last.backlog.age_s or 0.0)

    @property
    def per_worker_per_s(self) -> float | None:
        """Records per second of one worker that is never idle; None while none was seen to do anything."""
        if self._full:
            return median(self._full)
        return self._seen_per_s * _UNTRIED or None

    def _measure(self, now: _Moment) -> None:
        before = self._measured_since
        if before is None or before.backlog.workers != now.backlog.workers or not now.backlog.workers:
            self._measured_since = now
            return
        elapsed_s = now.at_s - before.at_s
        if elapsed_s < _MEASURE_S:
            return
        self._measured_since = now
        reading = min(now.backlog.workers, len(now.backlog.partitions))
        self._take(_done(before.backlog, now.backlog) / elapsed_s / reading, full=_full(before) and _full(now))

    def _take(self, per_s: float, *, full: bool) -> None:
        if per_s <= 0:
            return  # broken down, or away: that says nothing about its speed
        self._seen_per_s = max(self._seen_per_s, per_s)
        if full or (self._full and per_s > median(self._full)):
            self._full.append(per_s)


def _full(moment: _Moment) -> bool:
    """Every worker had something that waited for it."""
    waited = [each for each in moment.backlog.partitions if each.waits and (each.age_s or 0.0) >= _WAITED_S]
    return len(waited) >= min(moment.backlog.workers, len(moment.backlog.partitions))


def _arrived(before: Backlog, after: Backlog) -> int:
    ends = {each.number: each.end for each in before.partitions}
    return sum(max(0, each.end - ends.get(each.number, each.end)) for each in after.partitions)


def _done(before: Backlog, after: Backlog) -> int:
    """Offsets that were committed; what retention took away does not count."""
    starts = {each.number: each.start for each in before.partitions}
    moved = (each for each in after.partitions if each.committed == each.start)
    return sum(max(0, each.start - starts.get(each.number, each.start)) for each in moved)
