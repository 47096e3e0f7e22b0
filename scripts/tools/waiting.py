"""Waiting with a deadline, for conditions and processes; freezing one, its CPU time; managers that close themselves."""

from __future__ import annotations

import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from typing import Self

import psutil


class Closing(ABC):
    """Is closed at the end of a `with` block, however that ends."""

    @abstractmethod
    def close(self) -> None:
        """End what was begun at construction."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


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


_TIMEOUT_S = 60.0


def suspend(process: psutil.Process) -> None:
    """Send SIGSTOP and wait until it has effect: on a busy machine the threads run on for a while. Raises TimeoutError."""
    process.suspend()
    if not wait_until(lambda: process.status() == psutil.STATUS_STOPPED, _TIMEOUT_S, 0.01):
        raise TimeoutError(f"process {process.pid} still runs {_TIMEOUT_S:g} s after SIGSTOP")


def cpu_s(pid: int | None) -> float:
    """CPU time of a process so far; 0 if there is none, or it has ended."""
    try:
        times = psutil.Process(pid).cpu_times() if pid else None
    except psutil.NoSuchProcess:
        return 0.0
    return float(times.user + times.system) if times else 0.0
