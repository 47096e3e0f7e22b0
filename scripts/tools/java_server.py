"""A server on loopback in its own Java process and a temporary folder, for the demo and the tests.

`tools.kafka.keeper` ends the process and removes the folder if the parent dies.
"""

from __future__ import annotations

import http.client
import sys
from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar, Self
from urllib.parse import urlsplit

import psutil

from tools.archives import ArchiveError, ArchiveLock, unpacked
from tools.kafka.java import log_tail, start_java
from tools.kafka.keeper import SERVER_PROPERTIES, KeptFolder
from tools.ports import free_ports
from tools.waiting import wait_until

HOST = "127.0.0.1"
START_TIMEOUT_S = 180.0  # seconds are usual; a busy machine may take many times that
STOP_TIMEOUT_S = 60.0


class JavaServer(ABC):
    """One server on a free port. It ends with this process, however that ends, and nothing of it stays."""

    NAME: ClassVar[str]
    """Begins the names of its log and of its folder."""
    ERROR: ClassVar[type[Exception]]
    """Raised if it does not start or does not run."""
    HEAP: ClassVar[tuple[str, ...]]

    def __init__(self) -> None:
        [self.port] = free_ports(1)
        self._kept = KeptFolder(None, f"enricher-{self.NAME}-")
        self._process: psutil.Popen | None = None

    @property
    @abstractmethod
    def url(self) -> str:
        """Its URL on loopback."""

    @property
    def pid(self) -> int:
        """Process id; raises `ERROR` if the server does not run."""
        if self._process is None or self._process.poll() is not None:
            raise self.ERROR(f"no {self.NAME} runs")
        return int(self._process.pid)

    def start(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Fetch the server if needed, start it, wait until it answers; cleans up on failure."""
        self._fetch()
        try:
            self._start_in(self._kept.open(), timeout_s)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End the server and remove its files; may be called twice."""
        self.kill()
        self._kept.close()

    def kill(self) -> None:
        """SIGKILL, and nothing is removed: none needs a graceful end."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait(STOP_TIMEOUT_S)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()

    @abstractmethod
    def answers(self) -> bool:
        """Whether it answers within two seconds."""

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
        log_path = self._kept.logs / f"{self.NAME}.log"
        self._process = process = start_java(folder, log_path, *self.HEAP, *arguments)
        wait_until(lambda: self.answers() or process.poll() is not None, timeout_s)
        if process.poll() is not None:
            raise self.ERROR(f"the server ended while starting. {log_tail(log_path)}")
        if not self.answers():
            raise self.ERROR(f"{self.url} did not answer in {timeout_s:.0f} s. {log_tail(log_path)}")


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


def fetch(lock_path: Path) -> None:
    """Download a server into the user's cache, once, and verify every file. Raises SystemExit if it cannot be had."""
    lock = ArchiveLock.read(lock_path)
    try:
        folder = unpacked(lock, lock.cache_folder)
    except ArchiveError as error:
        sys.exit(str(error))
    print(f"{lock.name} {lock.version} is complete in {folder}.", file=sys.stderr)
