"""Signals, as every command that runs a worker takes them."""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Protocol

log = logging.getLogger("enricher.commands.run")


def interrupted(number: int) -> int:
    """The exit code of a command that a signal ended before it had done its work, as shells have it."""
    return 128 + number


class CanStop(Protocol):
    """What runs, until somebody asks it to end."""

    def stop(self) -> None:
        """Ask. Must not block: it is called in a signal handler."""
        ...


class Signals:
    """What SIGTERM and SIGINT do: end the process while it starts, ask what it runs to stop once there is something.

    `early_code`: the exit code while it starts, by the number of the signal.
    """

    def __init__(self, early_code: Callable[[int], int]) -> None:
        self._early_code = early_code
        self._running: CanStop | None = None
        self.received: int | None = None
        """The number of the signal that asked to end."""

    def stop(self, running: CanStop) -> None:
        """From now on signals are for this."""
        self._running = running

    def __call__(self, number: int, _frame: FrameType | None) -> None:
        """The handler."""
        self.received = number
        if self._running is None:
            log.info("%s: leaving before anything was read", signal.Signals(number).name)
            raise SystemExit(self._early_code(number))
        log.info("%s: finishing what has begun, then leaving", signal.Signals(number).name)
        signal.signal(number, signal.SIG_DFL if number == signal.SIGTERM else signal.default_int_handler)
        self._running.stop()


@contextmanager
def stopped_by_signals(early_code: Callable[[int], int] = lambda _number: 0) -> Iterator[Signals]:
    """SIGTERM and SIGINT end things in good order; a second one of them takes its usual way.

    A worker that is asked to stop has done its work, so `early_code` is 0 unless a command says otherwise.
    """
    signals = Signals(early_code)
    usual = {number: signal.signal(number, signals) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield signals
    finally:
        for number, handler in usual.items():
            signal.signal(number, handler)
