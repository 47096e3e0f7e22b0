"""Reports progress of the builds on standard error, for a terminal or a log."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Self

from rich.console import Console

from tools.command_line import remark

if TYPE_CHECKING:
    from types import TracebackType

_EVERY_S = 60.0  # between lines of a log


class Step:
    """One step of several, as a context manager: a live line on a terminal, otherwise a line now and then."""

    def __init__(self, number: int, total: int, what: str) -> None:
        self._label = f"[{number} of {total}] {what}"
        self._console = Console(stderr=True, highlight=False, markup=False)
        self._status = self._console.status(self._label) if self._console.is_terminal else None
        self._packages = 0
        self._started_s = self._said_s = time.monotonic()

    def package(self, _line: str) -> None:
        """Count a package that Go has fetched or starts to compile."""
        self._packages += 1
        text = f"{self._label}: {self._packages} packages, {self._spent_s:.0f} s"
        if self._status is not None:
            self._status.update(text)
        elif time.monotonic() - self._said_s >= _EVERY_S:
            self._said_s = time.monotonic()
            remark(text)

    def __enter__(self) -> Self:
        if self._status is not None:
            self._status.start()
        else:
            remark(f"{self._label} ...")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._status is not None:
            self._status.stop()
        remark(f"{self._label}: {'done' if error is None else 'failed'} after {self._spent_s:.1f} s")

    @property
    def _spent_s(self) -> float:
        return time.monotonic() - self._started_s
