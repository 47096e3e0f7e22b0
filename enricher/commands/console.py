"""The two streams of a command: data on standard output, progress and remarks on standard error.

Colours and moving lines only on a terminal. Nothing about Kafka, models or settings belongs here.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import NoReturn, Self

from rich.console import Console
from rich.status import Status
from rich.table import Table

from enricher.files.sink import output_closed

_LINE_EVERY_S = 5.0
_DRAW_EVERY_S = 0.2
_WIDE = 120
"""Columns of a table that goes to a file or a pipe, where nobody tells how wide it is."""


class _DataConsole(Console):
    def on_broken_pipe(self) -> NoReturn:
        """Rich's own would end the process with code 1."""
        raise output_closed(sys.stdout.buffer)


def data_console() -> Console:
    """For results."""
    return _DataConsole(highlight=False, width=None if sys.stdout.isatty() else _WIDE)


def remark_console() -> Console:
    """For progress and remarks."""
    return Console(stderr=True, highlight=False, soft_wrap=True)


def remark_table(table: Table) -> None:
    """A table among the remarks; as wide as it needs where nobody tells how wide a line may be."""
    width = None if sys.stderr.isatty() else _WIDE
    Console(stderr=True, highlight=False, width=width).print(table)


def write_line(line: bytes) -> None:
    """One line of machine-readable data, at once. Raises OutputClosed."""
    try:
        sys.stdout.buffer.write(line + b"\n")
        sys.stdout.buffer.flush()
    except BrokenPipeError as error:
        raise output_closed(sys.stdout.buffer) from error


class Ticker:
    """Shows how far a command is: a moving line on a terminal, elsewhere a line every few seconds."""

    def __init__(self, console: Console, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._clock = clock
        self._status = Status("", console=console) if console.is_terminal else None
        self._every_s = _DRAW_EVERY_S if self._status else _LINE_EVERY_S
        self._next_s = clock() + self._every_s

    def tick(self, text: Callable[[], str]) -> None:
        """Show `text` if it is time to; may be called often."""
        now_s = self._clock()
        if now_s < self._next_s:
            return
        self._next_s = now_s + self._every_s
        if self._status:
            self._status.update(text())
        else:
            self._console.print(text())

    def __enter__(self) -> Self:
        if self._status:
            self._status.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._status:
            self._status.stop()
