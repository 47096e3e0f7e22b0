"""Signals, as every command that runs a worker takes them."""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Protocol

log = logging.getLogger("enricher.commands.run")


class CanStop(Protocol):
    """What runs, until somebody asks it to end."""

    def stop(self) -> None:
        """Ask. Must not block: it is called in a signal handler."""
        ...


class Signals:
    """What SIGTERM and SIGINT do: end the process while it starts, ask what it runs to stop once there is something."""

    def __init__(self) -> None:
        self._running: CanStop | None = None

    def stop(self, running: CanStop) -> None:
        """From now on signals are for this."""
        self._running = running

    def __call__(self, number: int, _frame: FrameType | None) -> None:
        """The handler."""
        if self._running is None:
            log.info("%s: leaving before anything was read", signal.Signals(number).name)
            raise SystemExit(0)
        log.info("%s: finishing what has begun, then leaving", signal.Signals(number).name)
        signal.signal(number, signal.SIG_DFL if number == signal.SIGTERM else signal.default_int_handler)
        self._running.stop()


@contextmanager
def stopped_by_signals() -> Iterator[Signals]:
    """SIGTERM and SIGINT end things in good order; a second one of them takes its usual way."""
    signals = Signals()
    usual = {number: signal.signal(number, signals) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield signals
    finally:
        for number, handler in usual.items():
            signal.signal(number, handler)
