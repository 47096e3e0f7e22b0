"""A server of one locked archive, on loopback in its own Java process and a temporary folder, for the demo and the tests.

Maven repositories have the archives; each is verified, and unpacked once into the user's cache. `tools.locks` writes a lock.
`tools.kafka.keeper` ends the process and removes the folder if the parent dies.
"""

from __future__ import annotations

import hashlib
import http.client
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from abc import ABC, abstractmethod
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path, PurePosixPath
from typing import ClassVar, Self
from urllib.parse import urlsplit

import psutil
from platformdirs import user_cache_path

from tools.kafka.java import log_tail, start_java
from tools.kafka.keeper import SERVER_PROPERTIES, KeptFolder
from tools.kafka.versions import ClusterError, Jar, announce, download, verify
from tools.ports import free_ports
from tools.waiting import wait_until


@dataclass(frozen=True, slots=True)
class ArchiveLock:
    """An archive: its name for users, coordinates as `tools.kafka.versions.download` takes them, bytes, sha256 in hex.

    `wanted`: patterns of the files that are unpacked, as `PurePath.match` takes them; without any, all are.
    """

    name: str
    coordinates: str
    size_bytes: int = 0
    sha256: str = ""
    wanted: tuple[str, ...] = ()

    @classmethod
    def read(cls, path: Path) -> ArchiveLock:
        fields = tomllib.loads(path.read_text(encoding="utf-8"))
        return cls(**{**fields, "wanted": tuple(fields.get("wanted", ()))})

    @property
    def version(self) -> str:
        return self.coordinates.split(":")[2]

    @property
    def cache_folder(self) -> Path:
        """Folder for the unpacked files: in the user's cache, one for each archive and what is wanted of it."""
        content = hashlib.sha256(repr((self.sha256, self.wanted)).encode()).hexdigest()
        return user_cache_path("enricher") / f"{self.name.lower()}-{self.version}-{content[:8]}"


def unpacked(lock: ArchiveLock, folder: Path) -> Path:
    """The folder with the server's files. If it does not exist, the archive is downloaded, verified and unpacked.

    That happens beside it: an interrupted or wrong download never gets there. Raises `NotFetched` if the archive cannot be
    had, and `ClusterError` if it is not what the lock names.
    """
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"{lock.name.lower()}-fetch-", dir=folder.parent) as scratch:
        content = Path(scratch) / "content"
        announce(f"{lock.name} from Maven Central", lock.size_bytes)
        archive = download(lock.coordinates, Path(scratch))
        verify(Jar(lock.coordinates, lock.size_bytes, lock.sha256), archive)
        unpack(lock, archive, content)
        try:
            content.rename(folder)
        except OSError:
            if not folder.is_dir():  # otherwise another process was quicker
                raise
    return folder


def unpack(lock: ArchiveLock, archive: Path, folder: Path) -> None:
    """Unpack what the lock wants of a zip or a tar file, without owners, links to outside or special files."""

    def is_wanted(name: str) -> bool:
        return not lock.wanted or any(PurePosixPath(name).match(pattern) for pattern in lock.wanted)

    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as zipped:
            names = [name for name in zipped.namelist() if is_wanted(name)]
            zipped.extractall(folder, names)  # noqa: S202  its hash was checked
    else:
        with tarfile.open(archive) as packed:
            packed.extractall(folder, [each for each in packed if is_wanted(each.name)], filter="data")


HOST = "127.0.0.1"
START_TIMEOUT_S = 180.0  # seconds are usual; a busy machine may take many times that
STOP_TIMEOUT_S = 60.0
_ANSWER_TIMEOUT_S = 2.0


class JavaServer(ABC):
    """One server on a free port. It ends with this process, however that ends, and nothing of it stays."""

    NAME: ClassVar[str]
    """Begins the names of its log and of its folder."""
    LOCK_PATH: ClassVar[Path]
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
        """Process id of the running server."""
        assert self._process is not None, "it was started"
        return int(self._process.pid)

    def start(self) -> None:
        """Fetch the server if needed, start it, wait until it answers; cleans up on failure. Raises as `unpacked`."""
        lock = ArchiveLock.read(self.LOCK_PATH)
        self._program = unpacked(lock, lock.cache_folder)
        try:
            self._start_in(self._kept.open())
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """SIGKILL, since none needs a graceful end, and remove its files; may be called twice."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait(STOP_TIMEOUT_S)
        self._kept.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()

    @property
    @abstractmethod
    def _health_url(self) -> str:
        """Answers with 200 once the server is ready."""

    @abstractmethod
    def _arguments(self, folder: Path) -> tuple[str, ...]:
        """Write its settings; return what follows Java's own options. Its files are in `_program`.

        The last one is a file named SERVER_PROPERTIES in `folder`, by which the keeper finds the process.
        """

    def _start_in(self, folder: Path) -> None:
        arguments = self._arguments(folder)
        assert Path(arguments[-1]) == folder / SERVER_PROPERTIES
        log_path = self._kept.logs / f"{self.NAME}.log"
        self._process = process = start_java(folder, log_path, *self.HEAP, *arguments)
        ready = wait_until(lambda: _is_ok(self._health_url) or process.poll() is not None, START_TIMEOUT_S)
        if process.poll() is not None:
            raise ClusterError(f"{self.NAME} ended while starting. {log_tail(log_path)}")
        if not ready:
            raise ClusterError(f"{self.url} did not answer in {START_TIMEOUT_S:.0f} s. {log_tail(log_path)}")
        listening = {each.laddr.ip for each in process.net_connections("tcp") if each.status == psutil.CONN_LISTEN}
        assert listening <= {HOST, f"::ffff:{HOST}"}, "it has no users and no TLS, so it is for this machine alone"


def _is_ok(url: str) -> bool:
    """Whether a GET is answered with 200 in time."""
    address = urlsplit(url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=_ANSWER_TIMEOUT_S)
    try:
        connection.request("GET", f"{address.path}?{address.query}")
        return connection.getresponse().status == HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def fetch(lock_path: Path) -> None:
    """Download a server into the user's cache, once. Raises SystemExit if it cannot be had."""
    lock = ArchiveLock.read(lock_path)
    try:
        folder = unpacked(lock, lock.cache_folder)
    except ClusterError as error:
        sys.exit(str(error))
    print(f"{lock.name} {lock.version} is in {folder}.", file=sys.stderr)
