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


class Crash(BaseException):
    """The end of a process. No handler of the worker may see it as an error."""


def no_fault(_step: str) -> None:
    """Everything works."""


class Mortal:
    """A process that its model, or anything else that runs at any time, can end: then it does nothing that others see."""

    def __init__(self, fault: Fault = no_fault) -> None:
        self._fault = fault
        self.dead = False

    def die(self) -> None:
        """Now."""
        self.dead = True

    def __call__(self, step: str) -> None:
        """Be asked before each step."""
        if self.dead:
            raise Crash(step)
        self._fault(step)


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
