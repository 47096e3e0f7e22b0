"""Limits how often the log repeats the same news about one subject."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass

_MOST_SUBJECTS = 1_000
"""The most subjects that are remembered. Then all are forgotten, and at worst a line is logged again."""


@dataclass(slots=True)
class _Period:
    """The lines with the same news about one subject, from `since_s` on."""

    since_s: float
    news: Hashable
    lines: int = 0
    left_out_before: int = 0
    """Lines of the previous period that were not logged."""


class Repeats:
    """Decides which lines to log: about each subject, at most `lines` with the same news in `period_s`.

    By default, the same news are logged once. Any thread may call it: at worst a line is logged twice.
    """

    def __init__(
        self, *, period_s: float = math.inf, lines: int = 1, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._period_s = period_s
        self._lines = lines
        self._clock = clock
        self._periods: dict[Hashable, _Period] = {}

    def is_new(self, subject: Hashable, news: Hashable = None) -> bool:
        """Whether to log these news about the subject now; counts the line."""
        now_s = self._clock()
        period = self._periods.get(subject)
        if period is None or period.news != news or now_s - period.since_s >= self._period_s:
            if period is None and len(self._periods) >= _MOST_SUBJECTS:
                self._periods.clear()
            left_out = 0 if period is None else max(0, period.lines - self._lines)
            period = self._periods[subject] = _Period(now_s, news, left_out_before=left_out)
        period.lines += 1
        return period.lines <= self._lines

    def left_out(self, subject: Hashable) -> int:
        """How many lines about the subject were left out in the previous period; 0 when asked again."""
        period = self._periods.get(subject)
        if period is None:
            return 0
        count, period.left_out_before = period.left_out_before, 0
        return count

    def forget(self, subject: Hashable) -> None:
        """Let the next line about the subject be new."""
        self._periods.pop(subject, None)
