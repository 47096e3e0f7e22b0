"""Only the archive that the lock names is unpacked, and only its files are run."""

from __future__ import annotations

import hashlib
import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from tools import java_server, opensearch, registry
from tools.java_server import ArchiveError, ArchiveLock, ArchiveMissing, content_digest, unpack, unpacked
from tools.locks import CHOSEN


def packed(files: dict[str, bytes]) -> bytes:
    """An archive with these files."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as content:
        for name, text in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text)
            content.addfile(entry, io.BytesIO(text))
    return buffer.getvalue()


ARCHIVE = packed({"quarkus-run.jar": b"a program", "lib/a.jar": b"a library"})


@pytest.fixture
def lock(tmp_path: Path) -> ArchiveLock:
    """The lock of a small archive."""
    return lock_of(ARCHIVE, tmp_path)


def lock_of(archive: bytes, tmp_path: Path, wanted: tuple[str, ...] = ()) -> ArchiveLock:
    """What the maintainers' script would write for this archive."""
    name = "group:artifact:1.0:tar.gz:all"
    (tmp_path / "once").write_bytes(archive)
    unpack(ArchiveLock("A server", name, wanted=wanted), tmp_path / "once", tmp_path / "unpacked")
    digest = content_digest(tmp_path / "unpacked")
    return ArchiveLock("A server", name, len(archive), hashlib.sha256(archive).hexdigest(), digest, wanted)


def downloads(monkeypatch: pytest.MonkeyPatch, content: bytes) -> list[str]:
    """Replaces the network by this content; returns the list of coordinates that are asked for."""
    asked: list[str] = []

    def download(coordinates: str, scratch: Path) -> Path:
        asked.append(coordinates)
        (scratch / "arrived").write_bytes(content)
        return scratch / "arrived"

    monkeypatch.setattr(java_server, "download", download)
    return asked


def test_another_archive_never_reaches_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lock: ArchiveLock
) -> None:
    """A download with another hash is refused before it is unpacked, and nothing of it stays."""
    downloads(monkeypatch, packed({"quarkus-run.jar": b"another program"}))
    folder = tmp_path / "cache" / "server"
    with pytest.raises(ArchiveError, match=lock.sha256):
        unpacked(lock, folder)
    assert [] == list(folder.parent.iterdir())


@pytest.mark.parametrize("harm", ["changed", "added", "removed"])
def test_a_changed_cache_is_an_error_that_names_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lock: ArchiveLock, harm: str
) -> None:
    """A file that is changed, added or missing stops the start."""
    downloads(monkeypatch, ARCHIVE)
    folder = unpacked(lock, tmp_path / "cache" / "server")
    if harm == "removed":
        (folder / "lib" / "a.jar").unlink()
    else:
        (folder / "lib" / ("a.jar" if harm == "changed" else "b.jar")).write_bytes(b"something else")
    with pytest.raises(ArchiveError, match="Remove the folder"):
        unpacked(lock, folder)


def test_an_archive_that_cannot_be_had_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the network the message names proxy and certificates, and the error is the one that skips tests."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    lock = ArchiveLock("A server", "group:artifact:1.0:tar.gz:all")
    with pytest.raises(ArchiveMissing, match="HTTPS_PROXY"):
        unpacked(lock, tmp_path / "cache" / "server")


def test_of_a_zip_only_what_is_wanted_is_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two thirds of OpenSearch's archive are tables that no test reads."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as content:
        for name in ("server-1/lib/a.jar", "server-1/lib/tools/b.jar", "server-1/modules/geoip/table"):
            content.writestr(name, name)
    lock = lock_of(buffer.getvalue(), tmp_path, ("server-*/lib/*.jar",))
    downloads(monkeypatch, buffer.getvalue())
    folder = unpacked(lock, tmp_path / "cache" / "server")
    assert [folder / "server-1/lib/a.jar"] == [path for path in folder.rglob("*") if path.is_file()]


@pytest.mark.parametrize("path", [registry.LOCK_PATH, opensearch.LOCK_PATH], ids=lambda path: path.stem)
def test_a_lock_names_one_version_with_its_hashes(path: Path) -> None:
    """What is started is what the lock says, and that is what the maintainers' script chooses."""
    lock = ArchiveLock.read(path)
    assert (CHOSEN[path].coordinates, CHOSEN[path].wanted) == (lock.coordinates, lock.wanted)
    assert len(lock.sha256) == len(lock.content_sha256) == hashlib.sha256().digest_size * 2
