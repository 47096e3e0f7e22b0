"""Servers that Maven repositories have as one archive: reads their locks, keeps verified copies in the user's cache.

With the copy in place, the network is not used. `tools.locks` writes a lock.
"""

from __future__ import annotations

import hashlib
import tarfile
import tempfile
import tomllib
import zipfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from platformdirs import user_cache_path

from tools.kafka.versions import ClusterError, announce, download


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
        verify(lock, archive)
        unpack(lock, archive, content)
        try:
            content.rename(folder)
        except OSError:
            if not folder.is_dir():  # otherwise another process was quicker
                raise


def verify(lock: ArchiveLock, archive: Path) -> None:
    """Raise `ArchiveError` unless the archive's hash equals the lock's."""
    with archive.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != lock.sha256:
        raise ArchiveError(
            f"the download of {lock.coordinates} is not the file that the lock names: sha256 {found}, expected "
            f"{lock.sha256}. It was cut off or changed on the way: try again, without a mirror if there is one."
        )


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
