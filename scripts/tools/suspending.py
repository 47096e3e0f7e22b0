"""Freezes a process, as a machine that stands still would."""

from __future__ import annotations

import psutil

from tools.waiting import wait_until

_TIMEOUT_S = 60.0


def suspend(process: psutil.Process) -> None:
    """Send SIGSTOP and wait until it has effect: on a busy machine the threads run on for a while. Raises TimeoutError."""
    process.suspend()
    if not wait_until(lambda: process.status() == psutil.STATUS_STOPPED, _TIMEOUT_S, 0.01):
        raise TimeoutError(f"process {process.pid} still runs {_TIMEOUT_S:g} s after SIGSTOP")
