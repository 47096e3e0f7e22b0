"""The folder of servers, and the process that ends them when the one that started them has ended, however it ended.

The keeper runs as a separate process that waits for the end of its standard input: the operating system closes that pipe
when the parent dies. The file needs only psutil, so that it starts at once and stays small.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from types import FrameType

import psutil

SERVER_PROPERTIES = "server.properties"
KILL_TIMEOUT_S = 60.0
_POLL_S = 0.05
_DISMISSED = b"dismissed"


def processes_of(folder: Path) -> Iterator[psutil.Process]:
    """Find processes whose `server.properties` lies under `folder`, by command line, so that no pid can be stale."""
    for process in psutil.process_iter(["cmdline"]):
        command = process.info["cmdline"] or []
        if command and Path(command[-1]).name == SERVER_PROPERTIES and Path(command[-1]).is_relative_to(folder):
            yield process


def wait_until_gone(folder: Path, timeout_s: float) -> bool:
    """Wait until no process is found; returns False on timeout.

    A zombie counts as gone: it has no command line, and in a container possibly nothing ever reaps it.
    """
    deadline_s = time.monotonic() + timeout_s  # not `tools.waiting`: this file runs by itself
    while any(processes_of(folder)):
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
        # Not isolated (-I): on a machine without a package index psutil is found by PYTHONPATH alone.
        command = [sys.executable, "-s", "-P", __file__, str(folder), "remove" if remove else "keep"]
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


LOGS = "SERVER_LOGS"
"""The environment variable that names a folder for the logs of servers whose own folder is removed at the end."""


class KeptFolder:
    """`data`: a folder that stays; without it a temporary one, whose name begins with `prefix`, removed at the end.

    `logs`: where its servers write their logs, once it is open.

    A keeper ends the servers in it when this process has ended, however it ends, unless `detach` is called.
    """

    def __init__(self, data: Path | None, prefix: str) -> None:
        self._data = data
        self._prefix = prefix
        self._keeper: Keeper | None = None
        self._cleanup = ExitStack()
        self.logs = data or Path()

    @property
    def temporary(self) -> bool:
        """Whether it is removed at the end."""
        return self._data is None

    def open(self) -> Path:
        """Create it, with a keeper that watches it before the first server starts."""
        folder = Path(tempfile.mkdtemp(prefix=self._prefix)) if self._data is None else self._data
        self.logs = folder = folder.resolve()
        folder.mkdir(parents=True, exist_ok=True)
        if self.temporary:
            self._cleanup.callback(shutil.rmtree, folder, ignore_errors=True)
            self.logs = Path(os.environ.get(LOGS, folder.parent)) / folder.name
            self.logs.mkdir(parents=True, exist_ok=True)
        self._keeper = Keeper(folder, remove=self.temporary)
        self._cleanup.callback(self._keeper.release)
        return folder

    def close(self) -> None:
        """Let the keeper clean up and end; may be called twice."""
        self._cleanup.close()

    def detach(self) -> None:
        """Let the servers outlive this process; the caller must end them. Only with `data`."""
        assert self._keeper is not None, "detach before start"
        assert self._data is not None, "a temporary folder would never be removed"
        self._cleanup.pop_all()
        self._keeper.dismiss()
