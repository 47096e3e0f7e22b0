"""A local server for development: started by one command, stopped by another.

Processes are found by their folder (see `tools.kafka.keeper.processes_of`), so there is no pid file that could be stale.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from platformdirs import user_state_path

from tools.command_line import NOT_RUNNING
from tools.kafka.keeper import end, processes_of
from tools.ports import is_free
from tools.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from tools.java_server import JavaServer

_CLOSES_S = 3.0
"""A process that was killed is gone from the list of processes before its sockets are closed."""


class JavaService:
    """The server of one folder, seen from outside its process. `folder`: without it one in the user's state."""

    def __init__(self, kind: type[JavaServer], folder: Path | None) -> None:
        self._kind = kind
        self.folder = (user_state_path("enricher") / kind.NAME if folder is None else folder).resolve()

    def url(self) -> str | None:
        """URL of the running server; None if none runs."""
        return self._kind.url_of(self._kind.port_in(self.folder)) if any(processes_of(self.folder)) else None

    def answers(self, url: str) -> bool:
        return self._kind.answers(url)

    def start(self, port: int | None) -> str:
        """Start a server that outlives this process, and return its URL; raises the server's error on failure."""
        server = self._kind(data=self.folder, port=self._choose_port(port))
        server.start()
        server.detach()
        return server.url

    def stop(self) -> bool:
        """End the server; returns whether one ran."""
        ran = any(processes_of(self.folder))
        end(self.folder)
        return ran

    def erase(self) -> None:
        """Remove what a server that does not run has kept."""
        kept = self.folder / self._kind.DATA
        if kept.is_file():
            kept.unlink()
        else:
            shutil.rmtree(kept, ignore_errors=True)

    def _choose_port(self, wanted: int | None) -> int | None:
        """The requested port, or an error if taken; without a request the usual one, or None if taken."""
        if wanted is None:
            return self._kind.USUAL_PORT if is_free(self._kind.USUAL_PORT) else None
        if wait_until(lambda: is_free(wanted), _CLOSES_S):
            return wanted
        raise self._kind.ERROR(f"port {wanted} is taken; name another with --port, or leave --port out")


def print_status(service: JavaService) -> int:
    """Print whether the server runs and answers; returns the exit code that says so, too."""
    url = service.url()
    if url is None:
        print("not running")
        return NOT_RUNNING
    up = service.answers(url)
    print(f"{'running' if up else 'does not answer'}: {url}")
    return 0 if up else NOT_RUNNING
