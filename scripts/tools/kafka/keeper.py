"""Ends a cluster's nodes when the process that started them has ended, be it by SIGTERM, SIGKILL or a crash.

Runs as a separate process that waits for the end of its standard input: the operating system closes that pipe when the
parent dies. The file needs only psutil, so that it starts at once and stays small.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

SERVER_PROPERTIES = "server.properties"
ZOOKEEPER = "zookeeper"
"""The folder of a cluster's ZooKeeper, if it has one."""
KILL_TIMEOUT_S = 60.0
_POLL_S = 0.05
_DISMISSED = b"dismissed"


def processes_of(folder: Path) -> Iterator[psutil.Process]:
    """Find processes whose `server.properties` lies under `folder`, by command line, so that no pid can be stale."""
    for process in psutil.process_iter(["cmdline"]):
        command = process.info["cmdline"] or []
        if command and Path(command[-1]).name == SERVER_PROPERTIES and Path(command[-1]).is_relative_to(folder):
            yield process


def brokers_of(folder: Path) -> Iterator[psutil.Process]:
    """Find the same without a ZooKeeper, which must not end before the brokers."""
    return (process for process in processes_of(folder) if Path(process.info["cmdline"][-1]).parent.name != ZOOKEEPER)


def wait_until_gone(
    folder: Path, timeout_s: float, find: Callable[[Path], Iterator[psutil.Process]] = processes_of
) -> bool:
    """Wait until `find` finds no process; returns False on timeout.

    A zombie counts as gone: it has no command line, and in a container possibly nothing ever reaps it.
    """
    deadline_s = time.monotonic() + timeout_s  # not `tools.waiting`: this file runs by itself
    while any(find(folder)):
        if time.monotonic() > deadline_s:
            return False
        time.sleep(_POLL_S)
    return True


def end(folder: Path) -> None:
    """Kill the nodes of `folder` and wait until they are gone."""
    for process in processes_of(folder):
        with suppress(psutil.NoSuchProcess):
            process.kill()
    wait_until_gone(folder, KILL_TIMEOUT_S)


class Keeper:
    """The parent's handle on the keeper process of one cluster folder."""

    def __init__(self, folder: Path, *, remove: bool) -> None:
        command = [sys.executable, "-I", __file__, str(folder), "remove" if remove else "keep"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)

    def release(self) -> None:
        """Let the keeper clean up and end; returns when the nodes (and the folder, if temporary) are gone."""
        self._process.communicate()

    def dismiss(self) -> None:
        """End the keeper without cleaning up: the nodes may outlive this process."""
        self._process.communicate(_DISMISSED)


def main() -> None:
    """Wait for the parent's end, then clean up after it."""

    def go_on(_signal: int, _frame: FrameType | None) -> None:
        """Ignore the signal: Ctrl-C or a stop of the process group is meant for the parent, whose end counts here."""

    signal.signal(signal.SIGINT, go_on)
    signal.signal(signal.SIGTERM, go_on)
    folder, then = Path(sys.argv[1]), sys.argv[2]
    if sys.stdin.buffer.read() == _DISMISSED:
        return
    end(folder)
    if then == "remove":
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
