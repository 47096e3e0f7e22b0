"""A server on loopback in its own Java process and folder, and the commands that start, stop and ask it.

`tools.kafka.keeper` ends the process if the parent dies, unless it was detached; then `local_service` finds it.
"""

from __future__ import annotations

import http.client
from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar, Self
from urllib.parse import urlsplit

import psutil
import typer

from tools import local_service
from tools.archives import ArchiveLock, unpacked
from tools.kafka.java import log_tail, start_java
from tools.kafka.keeper import SERVER_PROPERTIES, KeptFolder
from tools.local_service import Data, Port, Service, add_commands, remark
from tools.ports import free_ports
from tools.waiting import suspend, wait_until

HOST = "127.0.0.1"
START_TIMEOUT_S = 180.0  # seconds are usual; a busy machine may take many times that
STOP_TIMEOUT_S = 60.0


class JavaServer(ABC):
    """One server.

    `data`: a folder for its log, settings and data, which is kept; without it a temporary one, removed at the end.
    `port`: without it a free one.

    The server ends with this process, however it ends, unless `detach` is called.
    """

    NAME: ClassVar[str]
    """Begins the names of its log and of its temporary folder."""
    ERROR: ClassVar[type[Exception]]
    """Raised if it does not start or does not run."""
    HEAP: ClassVar[tuple[str, ...]]
    DATA: ClassVar[str]
    """The file or folder, in its folder, of what it keeps."""
    USUAL_PORT: ClassVar[int]
    """The port where developers expect it."""

    def __init__(self, *, data: Path | None = None, port: int | None = None) -> None:
        self.port = free_ports(1)[0] if port is None else port
        self._kept = KeptFolder(data, f"enricher-{self.NAME}-")
        self._process: psutil.Popen | None = None

    @property
    def url(self) -> str:
        return self.url_of(self.port)

    @property
    def is_temporary(self) -> bool:
        """Whether nothing of it is kept."""
        return self._kept.temporary

    @property
    def pid(self) -> int:
        """Process id; raises `ERROR` if the server does not run."""
        return int(self._running_process().pid)

    def start(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Fetch the server if needed, start it, wait until it answers; cleans up on failure."""
        self._fetch()
        try:
            self._start_in(self._kept.open(), timeout_s)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End the server and remove temporary files; may be called twice."""
        self.kill()
        self._kept.close()

    def kill(self) -> None:
        """SIGKILL, and nothing is removed: none needs a graceful end, and a suspended process would not see SIGTERM."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait(STOP_TIMEOUT_S)

    def suspend(self) -> None:
        """SIGSTOP: connections stay open and nothing answers."""
        suspend(self._running_process())

    def resume(self) -> None:
        """SIGCONT: the process continues with all that it has."""
        self._running_process().resume()

    def detach(self) -> None:
        """Let the server outlive this process; the caller must end it. Only with `data`."""
        self._kept.detach()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()

    @staticmethod
    @abstractmethod
    def url_of(port: int) -> str:
        """Its URL on this port of loopback."""

    @staticmethod
    @abstractmethod
    def port_in(folder: Path) -> int:
        """The port in the settings that were written into its folder."""

    @staticmethod
    @abstractmethod
    def answers(url: str) -> bool:
        """Whether one answers there within two seconds."""

    @abstractmethod
    def _fetch(self) -> None:
        """Download its program if needed. Raises `ArchiveError`."""

    @abstractmethod
    def _arguments(self, folder: Path) -> tuple[str, ...]:
        """Write its settings; return what follows Java's own options.

        The last one is a file named SERVER_PROPERTIES in `folder`, by which the keeper finds the process.
        """

    def _start_in(self, folder: Path, timeout_s: float = START_TIMEOUT_S) -> None:
        arguments = self._arguments(folder)
        assert Path(arguments[-1]) == folder / SERVER_PROPERTIES
        self._process = start_java(folder, self._log_path, *self.HEAP, *arguments)
        self._wait_until_ready(self._process, timeout_s)

    def _wait_until_ready(self, process: psutil.Popen, timeout_s: float) -> None:
        wait_until(lambda: self.answers(self.url) or process.poll() is not None, timeout_s)
        if process.poll() is not None:
            raise self.ERROR(f"the server ended while starting. {log_tail(self._log_path)}")
        if not self.answers(self.url):
            raise self.ERROR(f"{self.url} did not answer in {timeout_s:.0f} s. {log_tail(self._log_path)}")

    @property
    def _log_path(self) -> Path:
        return self._kept.logs / f"{self.NAME}.log"

    def _running_process(self) -> psutil.Popen:
        if self._process is None or self._process.poll() is not None:
            raise self.ERROR(f"no {self.NAME} runs")
        return self._process


def status_of(url: str, timeout_s: float = 2.0) -> int | None:
    """The status of the answer to a GET; None if there is none in time."""
    address = urlsplit(url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=timeout_s)
    try:
        connection.request("GET", address.path + (f"?{address.query}" if address.query else ""))
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


class JavaService(Service):
    """The one server of a kind that a folder has."""

    def __init__(self, kind: type[JavaServer], folder: Path | None) -> None:
        self.NAME, self.ERROR, self.USUAL_PORT = kind.NAME, kind.ERROR, kind.USUAL_PORT  # type: ignore[misc]
        super().__init__(folder)
        self._kind = kind

    def address(self) -> str | None:
        return self._kind.url_of(self._kind.port_in(self.folder)) if self.processes() else None

    def answers(self, address: str) -> bool:
        return self._kind.answers(address)

    def kept(self) -> Iterable[Path]:
        return [self.folder / self._kind.DATA]

    def start(self, port: int | None) -> str:
        """Start a server that outlives this process, and return its URL; raises the server's error on failure."""
        server = self._kind(data=self.folder, port=self.choose_port(port))
        server.start()
        server.detach()
        return server.url


def commands_of(kind: type[JavaServer], about: str, *, name: str, variable: str, lock_path: Path) -> typer.Typer:
    """A command line for a kind of server. `name`: as a sentence has it; `variable`: of the environment, for its URL."""
    app = typer.Typer(
        add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None, help=about
    )

    @app.command(help=f"Start {name} and return when it answers. Prints the line that points the program at it.")
    def start(port: Port = None, data: Data = None) -> None:
        service = JavaService(kind, data)
        url = local_service.start(service, lambda: service.start(port), name)
        if port not in {None, urlsplit(url).port}:
            raise kind.ERROR(f"it is at {url}: stop it first with `scripts/{kind.NAME} stop`")
        print(f"export {variable}={url}")

    @app.command(
        help="Download the server into the user's cache, once, and verify every file; start does this if needed."
    )
    def fetch() -> None:
        lock = ArchiveLock.read(lock_path)
        remark(f"{lock.name} {lock.version} is complete in {unpacked(lock, lock.cache_folder)}.")

    add_commands(app, lambda data: JavaService(kind, data), name)
    return app
