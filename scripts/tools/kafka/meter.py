"""Reports the progress of a long download on standard error; standard output stays free for results."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import TracebackType

_EVERY_S = 2.0  # the first line comes after this time, so quick downloads stay silent


class Meter:
    """Counts bytes and reports them every two seconds; silent if everything is done sooner."""

    def __init__(self, what: str, total_bytes: int) -> None:
        self._what = what
        self._total_bytes = total_bytes
        self._done_bytes = 0
        self._started_s = self._said_s = time.monotonic()

    def add(self, count_bytes: int) -> None:
        self._done_bytes += count_bytes
        now_s = time.monotonic()
        if now_s - self._said_s >= _EVERY_S:
            self._said_s = now_s
            self._say(f"{self._done_bytes / 1e6:.0f} of {self._total_bytes / 1e6:.0f} MB")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        spent_s = time.monotonic() - self._started_s
        if error is None and self._said_s > self._started_s:
            self._say(f"{self._total_bytes / 1e6:.0f} MB in {spent_s:.0f} s")

    def _say(self, progress: str) -> None:
        print(f"{self._what}: {progress}", file=sys.stderr, flush=True)
