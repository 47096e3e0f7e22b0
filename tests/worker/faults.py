"""What can be made to go wrong at each step that touches the fake log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

Fault = Callable[[str], None]
"""Called with the name of a step before it is done; may raise what then happens instead, a crash included."""


class Late(Exception):
    """Raised by a fault: the request is on its way and arrives later, while its sender believes that it failed."""

    def __init__(self, after_s: float) -> None:
        super().__init__(after_s)
        self.after_s = after_s


def no_fault(_step: str) -> None:
    """Everything works."""


class Faults:
    """Raises an error at the given visits to a step, counted from 1."""

    def __init__(self, step: str, error: Exception, *visits: int) -> None:
        self._step = step
        self._error = error
        self._visits = visits
        self.seen: Counter[str] = Counter()

    def __call__(self, step: str) -> None:
        """Be asked before each step."""
        self.seen[step] += 1
        if step == self._step and (not self._visits or self.seen[step] in self._visits):
            raise self._error
