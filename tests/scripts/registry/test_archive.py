"""Only the archive that the lock names is unpacked, and only its files are run."""

from __future__ import annotations

import hashlib
import io
import tarfile
from pathlib import Path

import pytest

from tools.kafka.meter import Meter
from tools.registry import ArchiveMissing, RegistryError, archive
from tools.registry.archive import ArchiveLock, content_digest, unpack, unpacked


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
    (tmp_path / "once.tar.gz").write_bytes(ARCHIVE)
    unpack(tmp_path / "once.tar.gz", tmp_path / "once")
    digest = content_digest(tmp_path / "once")
    return ArchiveLock("group:artifact:1.0:tar.gz:all", len(ARCHIVE), hashlib.sha256(ARCHIVE).hexdigest(), digest)


def downloads(monkeypatch: pytest.MonkeyPatch, content: bytes) -> list[str]:
    """Replaces the network by this content; returns the list of paths that are asked for."""
    asked: list[str] = []

    def download(path: str, target: Path, _meter: Meter) -> None:
        asked.append(path)
        target.write_bytes(content)

    monkeypatch.setattr(archive, "download", download)
    return asked


def test_the_archive_is_fetched_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lock: ArchiveLock) -> None:
    """The second call finds the files and asks nobody."""
    asked = downloads(monkeypatch, ARCHIVE)
    folder = tmp_path / "cache" / "server"
    assert folder == unpacked(lock, folder) == unpacked(lock, folder)
    assert ["group/artifact/1.0/artifact-1.0-all.tar.gz"] == asked
    assert [folder] == list(folder.parent.iterdir())


def test_another_archive_never_reaches_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lock: ArchiveLock
) -> None:
    """A download with another hash is refused before it is unpacked, and nothing of it stays."""
    downloads(monkeypatch, packed({"quarkus-run.jar": b"another program"}))
    folder = tmp_path / "cache" / "server"
    with pytest.raises(RegistryError, match=lock.sha256):
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
    with pytest.raises(RegistryError, match="Remove the folder"):
        unpacked(lock, folder)


def test_an_archive_that_cannot_be_had_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the network the message names proxy and certificates, and the error is the one that skips tests."""
    monkeypatch.setattr(archive, "_CENTRAL", "http://127.0.0.1:1/")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    lock = ArchiveLock("group:artifact:1.0:tar.gz:all", 1, "", "")
    with pytest.raises(ArchiveMissing, match="HTTPS_PROXY"):
        unpacked(lock, tmp_path / "cache" / "server")


def test_the_lock_names_one_version_with_its_hashes() -> None:
    """What is started is what the lock says."""
    lock = ArchiveLock.read()
    assert lock.path.startswith("io/apicurio/apicurio-registry-app/")
    assert lock.path.endswith(f"apicurio-registry-app-{lock.version}-all.tar.gz")
    assert len(lock.sha256) == len(lock.content_sha256) == hashlib.sha256().digest_size * 2
