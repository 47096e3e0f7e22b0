"""Keeps a log from saying the same again and again."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass

_MOST_SUBJECTS = 1_000
"""So many are remembered; then all are forgotten, and at worst a line is logged again."""


@dataclass(slots=True)
class _Said:
    """Counts what was said about one subject in the current period."""

    since_s: float
    news: Hashable
    lines: int = 0
    left_out: int = 0
    """Lines of the period before that were not logged."""


class Repeats:
    """Decides which lines of a log are new: about each subject, `lines` with the same news in `period_s`.

    By default, the same news are logged once. Safe in several threads: at worst a line is logged twice.
    """

    def __init__(
        self, *, period_s: float = math.inf, lines: int = 1, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._period_s = period_s
        self._lines = lines
        self._clock = clock
        self._said: dict[Hashable, _Said] = {}

    def is_new(self, subject: Hashable, news: Hashable = None) -> bool:
        """Whether to log these news about the subject now. If so, notes them as logged."""
        now_s = self._clock()
        said = self._said.get(subject)
        if said is None or said.news != news or now_s - said.since_s >= self._period_s:
            if said is None and len(self._said) >= _MOST_SUBJECTS:
                self._said.clear()
            left_out = 0 if said is None else max(0, said.lines - self._lines)
            said = self._said[subject] = _Said(now_s, news, left_out=left_out)
        said.lines += 1
        return said.lines <= self._lines

    def left_out(self, subject: Hashable) -> int:
        """How many lines about the subject were left out in the period before this one; 0 if asked again."""
        said = self._said.get(subject)
        if said is None:
            return 0
        count, said.left_out = said.left_out, 0
        return count

    def forget(self, subject: Hashable) -> None:
        """Take the next line about the subject for new."""
        self._said.pop(subject, None)
