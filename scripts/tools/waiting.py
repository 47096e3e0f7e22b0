"""Waiting with a deadline, also for a process to end."""

from __future__ import annotations

import subprocess
import time
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def wait_until(condition: Callable[[], bool], timeout_s: float, every_s: float = 0.1) -> bool:
    """Wait until `condition()` is true; returns False on timeout."""
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline_s:
            return False
        time.sleep(every_s)
    return True


def wait_while_it_shrinks(count: Callable[[], int], stall_s: float, every_s: float = 0.1) -> bool:
    """Wait until `count()` is 0; returns False once it has not reached a new minimum for `stall_s`."""
    least, since_s = count(), time.monotonic()
    while least > 0:
        time.sleep(every_s)
        if (now := count()) < least:
            least, since_s = now, time.monotonic()
        elif time.monotonic() - since_s > stall_s:
            return False
    return True


def stop(process: subprocess.Popen[bytes], timeout_s: float = 20.0) -> None:
    """Ask a process to end, and kill it if it has not ended by then. A worker finishes what is on the device first."""
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(timeout_s)
    process.kill()
    process.wait()
