"""A server on loopback in its own Java process and folder, and the commands that start, stop and ask it.

`tools.kafka.keeper` ends the process if the parent dies, unless it was detached; then it is found by its folder, so there is
no pid file that could be stale. Results go to standard output, progress to standard error.
"""

from __future__ import annotations

import http.client
import shutil
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Self
from urllib.parse import urlsplit

import typer
from platformdirs import user_state_path

from tools.archives import ArchiveLock, unpacked
from tools.command_line import NOT_RUNNING, remark
from tools.kafka.java import log_tail, start_java
from tools.kafka.keeper import SERVER_PROPERTIES, KeptFolder, end, processes_of
from tools.ports import free_ports, is_free
from tools.waiting import suspend, wait_until

if TYPE_CHECKING:
    from pathlib import Path

    import psutil

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


Data = Annotated[
    Path | None,
    typer.Option("--data", help="Folder for what it keeps, log and settings; pass the same one to every command."),
]
Port = Annotated[
    int | None, typer.Option("--port", help="Port [default: the usual one, or a free one if it is taken].")
]
Erase = Annotated[bool, typer.Option("--erase", help="Remove what it has kept, too.")]


def commands_of(kind: type[JavaServer], about: str, *, name: str, variable: str, lock_path: Path) -> typer.Typer:
    """A command line for a kind of server. `name`: as a sentence has it; `variable`: of the environment, for its URL."""
    title, script = f"{name[0].upper()}{name[1:]}", f"scripts/{kind.NAME}"
    app = typer.Typer(
        add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None, help=about
    )

    @app.command(help=f"Start {name} and return when it answers. Prints the line that points the program at it.")
    def start(port: Port = None, data: Data = None) -> None:
        service = JavaService(kind, data)
        url = service.url()
        if url is None:
            remark(f"Starting {name} ...")
            started_s = time.monotonic()
            url = service.start(port)
            remark(f"It answers after {time.monotonic() - started_s:.1f} s; log and data in {service.folder}.")
        else:
            remark(f"{title} is already running; nothing to do.")
            if port not in {None, urlsplit(url).port}:
                raise kind.ERROR(f"it is at {url}: stop it first with `{script} stop`")
        print(f"export {variable}={url}")

    @app.command(help=f"Stop {name}; what it keeps stays unless --erase is given. Does nothing if it does not run.")
    def stop(data: Data = None, erase: Erase = False) -> None:  # noqa: FBT002  typer's way
        service = JavaService(kind, data)
        remark(f"{title} has been stopped." if service.stop() else f"{title} is not running; nothing to do.")
        if erase:
            service.erase()
            remark(f"What it kept under {service.folder} has been removed.")

    @app.command(help=f"Tell whether {name} runs and answers: exit code 0 if so, 3 if not.")
    def status(data: Data = None) -> None:
        raise typer.Exit(print_status(JavaService(kind, data)))

    @app.command(
        help="Download the server into the user's cache, once, and verify every file; start does this if needed."
    )
    def fetch() -> None:
        lock = ArchiveLock.read(lock_path)
        remark(f"{lock.name} {lock.version} is complete in {unpacked(lock, lock.cache_folder)}.")

    return app
