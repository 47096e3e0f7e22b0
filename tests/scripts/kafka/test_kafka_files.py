"""What servers are started from, without starting them: versions, jars and archives that match their locks, properties."""

from __future__ import annotations

import hashlib
import io
import re
import sys
import zipfile
from pathlib import Path

import pytest
from support.topics import Topics

from tools import java_server, opensearch, registry
from tools.java_server import ArchiveLock, unpacked
from tools.kafka import ClusterError, versions
from tools.kafka.java import MAIN_CLASSES, main_class, run_tool
from tools.kafka.versions import (
    VERSIONS,
    Jar,
    JarLock,
    class_path,
)
from tools.locks import CHOSEN, requested

CONTENT = b"a jar"
JAR = Jar("group:artifact:1.0", len(CONTENT), hashlib.sha256(CONTENT).hexdigest())
LOCK = JarLock("1.0", ("group:artifact:1.0",), (JAR,))


def no_download(coordinates: str, scratch: Path) -> Path:
    """Replaces the network, which must not be used."""
    raise AssertionError(f"{coordinates} was fetched into {scratch}")


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


@pytest.mark.parametrize("version", VERSIONS)
def test_lock_holds_one_kafka_with_a_hash_for_every_jar(version: str) -> None:
    """All of Kafka's own jars have the locked version, since a mixture crashes at start."""
    lock = JarLock.read(version)
    own = {jar.coordinates.rsplit(":", 1)[1] for jar in lock.jars if jar.coordinates.startswith("org.apache.kafka:")}
    assert {version} == {lock.kafka_version} == own
    assert lock.requested == requested(version)
    assert all(re.fullmatch("[0-9a-f]{64}", jar.sha256) and jar.size_bytes > 0 for jar in lock.jars)
    assert set(lock.requested) <= {jar.coordinates for jar in lock.jars}


def test_a_machine_that_cannot_fetch_says_which_jar_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`scripts/bench peers` then goes on without DJL."""
    monkeypatch.setitem(sys.modules, "jgo.config", None)
    with pytest.raises(ClusterError, match=r"group:artifact:1\.0 is not in the cache, and jgo\.config"):
        class_path(LOCK, tmp_path)


DEPLOY = Path(__file__).parents[3] / "deploy"


def test_every_tool_that_the_pages_name_can_be_had() -> None:
    """Every tool named in the documentation is available, with or without `.sh`."""
    pages = "".join(path.read_text("utf-8") for path in sorted(DEPLOY.rglob("*.md")))
    named = set(
        re.findall(r"\bkafka-(?:acls|consumer-groups|topics|transactions|configs|get-offsets)(?:\.sh)?\b", pages)
    )
    assert {"kafka-acls.sh", "kafka-consumer-groups", "kafka-topics", "kafka-transactions.sh"} <= named
    assert {main_class(name) for name in named} <= set(MAIN_CLASSES.values())
    with pytest.raises(ClusterError, match="there are acls, "):
        main_class("kafka-nothing")


@pytest.mark.broker
def test_a_tool_talks_to_the_kafka_that_runs_here(topics: Topics, capfd: pytest.CaptureFixture[str]) -> None:
    """A tool uses the local Kafka unless another one is named."""
    assert 0 == run_tool("kafka-topics.sh", ["--list"], topics.bootstrap_servers)
    assert topics.input in capfd.readouterr().out.splitlines()


def lock_of(archive: bytes, wanted: tuple[str, ...] = ()) -> ArchiveLock:
    """What the maintainers' script would write for this archive."""
    name = "group:artifact:1.0:tar.gz:all"
    return ArchiveLock("A server", name, len(archive), hashlib.sha256(archive).hexdigest(), wanted)


def downloads(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    """Replaces the network by this content."""

    def download(_coordinates: str, scratch: Path) -> Path:
        (scratch / "arrived").write_bytes(content)
        return scratch / "arrived"

    monkeypatch.setattr(java_server, "download", download)


def test_another_archive_never_reaches_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A download with another hash is refused before it is unpacked, and nothing of it stays."""
    downloads(monkeypatch, b"another program")
    lock = lock_of(b"a program")
    folder = tmp_path / "cache" / "server"
    with pytest.raises(ClusterError, match=lock.sha256):
        unpacked(lock, folder)
    assert [] == list(folder.parent.iterdir())


def test_of_a_zip_only_what_is_wanted_is_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two thirds of OpenSearch's archive are tables that no test reads."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as content:
        for name in ("server-1/lib/a.jar", "server-1/lib/tools/b.jar", "server-1/modules/geoip/table"):
            content.writestr(name, name)
    lock = lock_of(buffer.getvalue(), ("server-*/lib/*.jar",))
    downloads(monkeypatch, buffer.getvalue())
    folder = unpacked(lock, tmp_path / "cache" / "server")
    assert [folder / "server-1/lib/a.jar"] == [path for path in folder.rglob("*") if path.is_file()]


@pytest.mark.parametrize("path", [registry.LOCK_PATH, opensearch.LOCK_PATH], ids=lambda path: path.stem)
def test_a_lock_names_one_version_with_its_hashes(path: Path) -> None:
    """What is started is what the lock says, and that is what the maintainers' script chooses."""
    lock = ArchiveLock.read(path)
    assert (CHOSEN[path].coordinates, CHOSEN[path].wanted) == (lock.coordinates, lock.wanted)
    assert len(lock.sha256) == hashlib.sha256().digest_size * 2
