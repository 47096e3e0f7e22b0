"""Only files that match the lock byte for byte reach the class path."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING

import pytest

from tools.kafka import ClusterError, versions
from tools.kafka.versions import DEFAULT, VERSIONS, Jar, JarLock, class_path, lock_path
from tools.locks import requested

if TYPE_CHECKING:
    from pathlib import Path

CONTENT = b"a jar"
JAR = Jar("group:artifact:1.0", len(CONTENT), hashlib.sha256(CONTENT).hexdigest())
LOCK = JarLock("1.0", ("group:artifact:1.0",), (JAR,))


def no_download(coordinates: str, scratch: Path) -> Path:
    """Replaces the network, which must not be used."""
    raise AssertionError(f"{coordinates} was fetched into {scratch}")


def test_complete_cache_needs_no_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With every jar in place, the class path is made without a download."""
    monkeypatch.setattr(versions, "download", no_download)
    (tmp_path / "artifact-1.0.jar").write_bytes(CONTENT)
    assert str(tmp_path / "artifact-1.0.jar") == class_path(LOCK, tmp_path)


def test_damaged_jar_is_an_error_that_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A changed byte in the cache stops the start, and the message names the file to remove."""
    monkeypatch.setattr(versions, "download", no_download)
    (tmp_path / "artifact-1.0.jar").write_bytes(b"a jaR")
    with pytest.raises(ClusterError, match=r"artifact-1\.0\.jar is not the file that the lock names"):
        class_path(LOCK, tmp_path)


def test_false_download_never_reaches_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A download with another hash is refused, and nothing of it stays in the folder."""

    def false_download(_coordinates: str, scratch: Path) -> Path:
        path = scratch / "arrived.jar"
        path.write_bytes(b"something else")
        return path

    monkeypatch.setattr(versions, "download", false_download)
    with pytest.raises(ClusterError, match="expected " + JAR.sha256):
        class_path(LOCK, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_missing_jar_is_fetched_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing jar is fetched once; the second call finds it."""

    def true_download(_coordinates: str, scratch: Path) -> Path:
        path = scratch / "arrived.jar"
        path.write_bytes(CONTENT)
        return path

    monkeypatch.setattr(versions, "download", true_download)
    first = class_path(LOCK, tmp_path)
    monkeypatch.setattr(versions, "download", no_download)
    assert first == class_path(LOCK, tmp_path)


@pytest.mark.parametrize("version", VERSIONS)
def test_lock_holds_one_kafka_with_a_hash_for_every_jar(version: str) -> None:
    """All of Kafka's own jars have the locked version, since a mixture crashes at start."""
    lock = JarLock.read(version)
    own = {jar.coordinates.rsplit(":", 1)[1] for jar in lock.jars if jar.coordinates.startswith("org.apache.kafka:")}
    assert {version} == {lock.kafka_version} == own
    assert lock.requested == requested(version)
    assert all(re.fullmatch("[0-9a-f]{64}", jar.sha256) and jar.size_bytes > 0 for jar in lock.jars)
    assert set(lock.requested) <= {jar.coordinates for jar in lock.jars}


def test_there_is_a_lock_for_every_version_and_no_other() -> None:
    """The list of versions and the folder of locks match."""
    locks = lock_path(DEFAULT).parent
    assert {lock_path(version) for version in VERSIONS} == set(locks.iterdir())


@pytest.mark.broker
def test_real_jar_with_one_changed_byte_is_detected(tmp_path: Path) -> None:
    """A copy of the real cache with one flipped bit is refused."""
    lock = JarLock.read()
    folder = versions.default_folder(lock)
    class_path(lock, folder)
    jar = next(jar for jar in lock.jars if "kafka-clients" in jar.coordinates)
    content = bytearray((folder / jar.file_name).read_bytes())
    content[len(content) // 2] ^= 1
    copy = tmp_path / jar.file_name
    copy.write_bytes(content)
    with pytest.raises(ClusterError, match="kafka-clients"):
        versions.verify(jar, copy)
