"""Speeds, from the backlog at several moments: how much arrives, and how much one worker processes. Pure: time is given.

A worker's speed shows only while it is never idle, that is, if every worker had waiting records at both ends of an interval.
The median of the last such intervals counts, so that one in which workers joined or left does no harm. Before the first such
interval the highest speed seen is a lower bound, and a little more is assumed.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from statistics import median

from enricher.operate.scaling.backlog import Backlog
from enricher.operate.scaling.policy import Load

_WINDOW_S = 60.0
"""Arrivals are averaged over this time: shorter follows chance, longer notices a peak too late."""
_MEASURE_S = 15.0
"""The shortest interval in which a worker is measured: many times its publish interval."""
_WAITED_S = 3.0
"""A record that waited this long was waiting for a worker, not for its batch or its transaction."""
_MEASURES = 7
_UNTRIED = 1.25
"""A worker's assumed speed, relative to the highest one seen, while it was never busy all the time."""


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

    def note(self, backlog: Backlog, now_s: float) -> Load:
        """Add the backlog at `now_s` (any monotonic clock), and return the load that follows."""
        moment = _Moment(now_s, backlog)
        self._moments.append(moment)
        # One older moment is kept, so that there are two however rare the looks are.
        while len(self._moments) > 2 and self._moments[1].at_s <= now_s - _WINDOW_S:
            self._moments.popleft()
        self._measure(moment)
        age_s = backlog.known_age_s
        return Load(
            waiting=backlog.behind,
            age_s=math.inf if age_s is None else age_s,
            waiting_partitions=backlog.waiting_partitions,
            partitions=len(backlog.partitions),
            workers=backlog.workers,
            arriving_per_s=self.arriving_per_s,
            per_worker_per_s=self.per_worker_per_s,
        )

    @property
    def arriving_per_s(self) -> float:
        """Records per second that arrived lately; after a single look, an estimate from the backlog and its age."""
        if not self._moments:
            return 0.0
        first, last = self._moments[0], self._moments[-1]
        if first.at_s < last.at_s:
            return _arrivals(first.backlog, last.backlog) / (last.at_s - first.at_s)
        return last.backlog.behind / max(_WINDOW_S, last.backlog.age_s or 0.0)

    @property
    def per_worker_per_s(self) -> float | None:
        """Records per second of one worker that is never idle; None until one was seen to process records."""
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
            return  # workers that are stuck or gone say nothing about their speed
        self._seen_per_s = max(self._seen_per_s, per_s)
        if full or (self._full and per_s > median(self._full)):
            self._full.append(per_s)


def _full(moment: _Moment) -> bool:
    """Whether every worker had waiting records."""
    waited = [each for each in moment.backlog.partitions if each.waits and (each.age_s or 0.0) >= _WAITED_S]
    return len(waited) >= min(moment.backlog.workers, len(moment.backlog.partitions))


def _arrivals(before: Backlog, after: Backlog) -> int:
    ends = {each.number: each.end for each in before.partitions}
    return sum(max(0, each.end - ends.get(each.number, each.end)) for each in after.partitions)


def _done(before: Backlog, after: Backlog) -> int:
    """Offsets that were committed, without those that retention deleted."""
    starts = {each.number: each.worker_start for each in before.partitions}
    moved = (each for each in after.partitions if each.committed == each.worker_start)
    return sum(max(0, each.worker_start - starts.get(each.number, each.worker_start)) for each in moved)
