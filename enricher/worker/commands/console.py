"""The two streams of a command: results on standard output, progress and remarks on standard error.

Colours and live updates appear only on a terminal. Nothing about Kafka, models or settings belongs here.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import NoReturn, Self

from rich.console import Console
from rich.status import Status
from rich.table import Table

from enricher.worker.files.plain_sinks import output_error
from enricher.worker.telemetry.logs import CONTROLS

_SPACES = dict.fromkeys(CONTROLS, " ")
_LINE_EVERY_S = 5.0
_DRAW_EVERY_S = 0.2
_WIDE = 120
"""Columns of a table in a file or a pipe, which have no width."""


class _DataConsole(Console):
    def on_broken_pipe(self) -> NoReturn:
        """Raise OutputClosed; Rich would end the process with exit code 1."""
        raise output_error(sys.stdout.buffer, BrokenPipeError())


def data_console() -> Console:
    """The console for results."""
    return _DataConsole(highlight=False, width=None if sys.stdout.isatty() else _WIDE)


def remark_console() -> Console:
    """The console for progress and remarks."""
    return Console(stderr=True, highlight=False, soft_wrap=True)


def remark_table(table: Table) -> None:
    """Print a table on standard error."""
    Console(stderr=True, highlight=False, width=None if sys.stderr.isatty() else _WIDE).print(table)


def printable(text: str) -> str:
    """The text with control characters replaced by spaces: articles and their publishers are untrusted."""
    return text.translate(_SPACES)


def write_line(line: bytes) -> None:
    """Write and flush one line of machine-readable data. Raises OutputClosed if its reader has gone."""
    try:
        sys.stdout.buffer.write(line + b"\n")
        sys.stdout.buffer.flush()
    except OSError as error:
        raise output_error(sys.stdout.buffer, error) from error


class Ticker:
    """Shows the progress of a command: a live line on a terminal, a line every 5 s elsewhere."""

    def __init__(self, console: Console, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._clock = clock
        self._status = Status("", console=console) if console.is_terminal else None
        self._every_s = _DRAW_EVERY_S if self._status else _LINE_EVERY_S
        self._began_s = clock()
        self._next_s = self._began_s + self._every_s

    def tick(self, text: Callable[[], str]) -> None:
        """Show `text` if the last line is old enough; may be called often."""
        now_s = self._clock()
        if now_s < self._next_s:
            return
        self._next_s = now_s + self._every_s
        if self._status:
            self._status.update(text())
        else:
            self._console.print(text())

    def show_step(self, doing: str, done: int, total: int) -> None:
        """Show how much of a step is done, as `tick` does."""
        self.tick(lambda: f"{doing}: {done:,} of {total:,}")

    def show_step_and_time(self, doing: str, done: int, total: int) -> None:
        """Show a step as `show_step` does, with the seconds since the ticker was made."""
        self.tick(lambda: f"{doing}: {done:,} of {total:,} ({self._clock() - self._began_s:.0f} s)")

    def __enter__(self) -> Self:
        if self._status:
            self._status.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        if self._status:
            self._status.stop()
