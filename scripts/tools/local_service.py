"""A server that outlives the command which started it, seen from outside, and what its command line shares with others.

Its processes are found by its folder (see `tools.kafka.keeper`), so there is no pid file that could be stale. Results go to
standard output, progress to standard error.
"""

from __future__ import annotations

import shutil
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Annotated, ClassVar

import psutil
import typer
from platformdirs import user_state_path

from tools.kafka.keeper import end, processes_of, wait_until_gone
from tools.kafka.node import STOP_TIMEOUT_S
from tools.ports import is_free
from tools.waiting import wait_until

NOT_RUNNING = 3
"""The exit code of `status`, as init scripts say it (LSB, "program is not running")."""
_CLOSES_S = 3.0
"""A process that was killed is gone from the list of processes before its sockets are closed."""

Data = Annotated[
    Path | None,
    typer.Option("--data", help="Folder for what it keeps and its log; pass the same one to every command."),
]
Port = Annotated[
    int | None, typer.Option("--port", help="Port, of the first node [default: the usual one, or free ones if taken].")
]
Erase = Annotated[bool, typer.Option("--erase", help="Remove what it has kept, too.")]


class Service(ABC):
    """The server of one folder. `folder`: without it one in the user's state."""

    NAME: ClassVar[str]
    """The name of its script and its folder."""
    ERROR: ClassVar[type[Exception]]
    USUAL_PORT: ClassVar[int]
    """The port where developers expect it."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = (user_state_path("enricher") / self.NAME if folder is None else folder).resolve()

    @property
    def title(self) -> str:
        """Its name in messages, perhaps with its version."""
        return self.NAME

    @abstractmethod
    def address(self) -> str | None:
        """Its address; None if it does not run, also if it was killed."""

    @abstractmethod
    def answers(self, address: str) -> bool:
        """Whether a client gets an answer within three seconds."""

    @abstractmethod
    def kept(self) -> Iterable[Path]:
        """The files and folders of what it keeps; the user's folder may hold other things."""

    def processes(self) -> list[psutil.Process]:
        return list(processes_of(self.folder))

    def stop(self) -> bool:
        """SIGTERM to all processes, then SIGKILL to what remains; returns whether any ran."""
        processes = self.processes()
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.resume()  # a suspended one would not see SIGTERM
                process.terminate()
        wait_until_gone(self.folder, STOP_TIMEOUT_S)
        end(self.folder)
        return bool(processes)

    def erase(self) -> None:
        """Remove what it has kept. It must not run."""
        for path in self.kept():
            if path.is_file():
                path.unlink()
            else:
                shutil.rmtree(path, ignore_errors=True)

    def choose_port(self, wanted: int | None, count: int = 1) -> int | None:
        """The first of so many ports in a row: as asked for, or `ERROR` if taken; otherwise the usual, or None if taken."""
        first = self.USUAL_PORT if wanted is None else wanted
        ports = range(first, first + count)
        if wait_until(lambda: all(map(is_free, ports)), 0.0 if wanted is None else _CLOSES_S):
            return first
        if wanted is None:
            return None
        taken = next((port for port in ports if not is_free(port)), first)
        raise self.ERROR(f"port {taken} is taken; name another with --port, or leave --port out")


def add_commands(app: typer.Typer, service_of: Callable[[Path | None], Service], name: str) -> None:
    """Add `stop` and `status` to a command line. `name`: of the server, as a sentence has it."""
    title = f"{name[0].upper()}{name[1:]}"

    @app.command(help=f"Stop {name}; what it keeps stays unless --erase is given. Does nothing if it does not run.")
    def stop(data: Data = None, erase: Erase = False) -> None:  # noqa: FBT002  typer's way
        service = service_of(data)
        ran = service.stop()
        remark(f"{title} has been stopped." if ran else f"{title} is not running in {service.folder}; nothing to do.")
        if erase:
            service.erase()
            remark(f"What it kept under {service.folder} has been removed.")

    @app.command(help=f"Tell whether {name} runs and answers: exit code 0 if so, 3 if not.")
    def status(data: Data = None) -> None:
        service = service_of(data)
        address = service.address()
        if address is None:
            print(f"not running (data in {service.folder})")
            raise typer.Exit(NOT_RUNNING)
        answers = service.answers(address)
        print(f"{'running' if answers else 'does not answer'}: {describe(service, address)}")
        raise typer.Exit(0 if answers else NOT_RUNNING)


def start(service: Service, launch: Callable[[], str], name: str) -> str:
    """Start a server unless it runs, and say how long it took or that there was nothing to do; returns its address."""
    address = service.address()
    if address is not None:
        remark(f"{name[0].upper()}{name[1:]} is already running ({describe(service, address)}); nothing to do.")
        return address
    remark(f"Starting {name} ...")
    started_s = time.monotonic()
    address = launch()
    remark(f"It answers after {time.monotonic() - started_s:.1f} s: {describe(service, address)}.")
    return address


def describe(service: Service, address: str) -> str:
    pids = ", ".join(str(process.pid) for process in service.processes())
    return f"{service.title}, {address}, process {pids}, data in {service.folder}"


def remark(text: str) -> None:
    """Print a remark to standard error: standard output is for results."""
    print(text, file=sys.stderr, flush=True)


def run(app: Callable[..., object], script: str, *expected: type[Exception]) -> None:
    """Run a command line; expected failures are printed as one sentence, with exit code 1."""
    try:
        app(prog_name=script)
    except expected as error:
        sys.exit(f"{script}: {error}")
