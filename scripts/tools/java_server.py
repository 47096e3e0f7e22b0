"""A server of one locked archive, on loopback in its own Java process and a temporary folder, for the demo and the tests.

Maven repositories have the archives; verified copies are kept in the user's cache, and then the network is not used.
`tools.locks` writes a lock. `tools.kafka.keeper` ends the process and removes the folder if the parent dies.
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


class ArchiveError(Exception):
    """An archive is not what its lock says; the message says what to do."""


class ArchiveMissing(ArchiveError):
    """The server is not in the cache and cannot be downloaded."""


@dataclass(frozen=True, slots=True)
class ArchiveLock:
    """An archive: its name for users, coordinates as `tools.kafka.versions.download` takes them, bytes, sha256 in hex.

    `content_sha256`: of the unpacked files, their names included (`content_digest`).
    `wanted`: patterns of the files that are unpacked, as `PurePath.match` takes them; without any, all are.
    """

    name: str
    coordinates: str
    size_bytes: int = 0
    sha256: str = ""
    content_sha256: str = ""
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
        """Folder for the unpacked files: in the user's cache, one for each content."""
        return user_cache_path("enricher") / f"{self.name.lower()}-{self.version}-{self.content_sha256[:8]}"


def unpacked(lock: ArchiveLock, folder: Path) -> Path:
    """The folder with the server's files; they are downloaded if it does not exist.

    Every file is hashed on every call (0.3 s for 161 MB), which tells a damaged cache from a broken server.
    Raises `ArchiveMissing` if the archive cannot be had, and `ArchiveError` if a file differs from the lock.
    """
    if not folder.is_dir():
        _fetch(lock, folder)
    found = content_digest(folder)
    if found != lock.content_sha256:
        message = (
            f"the files under {folder} are not those that the lock names: sha256 {found}, expected "
            f"{lock.content_sha256}. One is damaged or was changed. Remove the folder and start again to fetch it again."
        )
        raise ArchiveError(message)
    return folder


def content_digest(folder: Path) -> str:
    """One sha256 over the names and contents of all files under `folder`."""
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        with path.open("rb") as file:
            digest.update(f"{path.relative_to(folder).as_posix()}\n".encode())
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def _fetch(lock: ArchiveLock, folder: Path) -> None:
    """Download, verify and unpack beside `folder`, then move: an interrupted or wrong download never gets there."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"{lock.name.lower()}-fetch-", dir=folder.parent) as scratch:
        content = Path(scratch) / "content"
        announce(f"{lock.name} from Maven Central", lock.size_bytes)
        try:
            archive = download(lock.coordinates, Path(scratch))
        except ClusterError as error:
            raise ArchiveMissing(str(error)) from error
        try:
            verify(Jar(lock.coordinates, lock.size_bytes, lock.sha256), archive)
        except ClusterError as error:
            raise ArchiveError(str(error)) from error
        unpack(lock, archive, content)
        try:
            content.rename(folder)
        except OSError:
            if not folder.is_dir():  # otherwise another process was quicker
                raise


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
