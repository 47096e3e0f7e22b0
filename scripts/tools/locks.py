"""Resolves the jars of Kafka and the archives of the other servers, and writes their locks (`scripts/lock`)."""

from __future__ import annotations

import hashlib
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

import tomli_w
from jgo.maven import Dependency, MavenContext

from tools import opensearch, registry
from tools.java_server import ArchiveLock
from tools.kafka.versions import (
    VERSIONS,
    ClusterError,
    Jar,
    download,
    lock_path,
    logs_with_log4j_1,
)

# Kafka's published POMs name no logging back end; these are what its own distributions ship. Those before 3.2 ship the
# unmaintained log4j 1.2.17, to which reload4j is the drop-in successor.
_LOG4J_1 = ("ch.qos.reload4j:reload4j:1.2.25", "org.slf4j:slf4j-reload4j:1.7.36")
_LOG4J_2 = ("org.apache.logging.log4j:log4j-core:2.25.4", "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4")


def requested(version: str) -> tuple[str, ...]:
    """Coordinates of the artifacts to request for a version of Kafka."""
    return (
        f"org.apache.kafka:kafka_2.13:{version}",
        # Named although kafka_2.13 needs it: the resolver alone chose 3.9.1 for 4.3.1, and the server crashed.
        f"org.apache.kafka:kafka-clients:{version}",
        *(_LOG4J_1 if logs_with_log4j_1(version) else _LOG4J_2),
    )


def _resolve(artifacts: Sequence[str], scratch: Path) -> list[str]:
    """Coordinates of the requested artifacts and all their run-time dependencies, sorted."""
    context = MavenContext(repo_cache=scratch)
    wanted = []
    for coordinates in artifacts:
        group, artifact, version = coordinates.split(":")
        wanted.append(Dependency(context.project(group, artifact).at_version(version).artifact()))
    inputs, transitive = context.resolver.resolve(wanted)
    return sorted({f"{found.groupId}:{found.artifactId}:{found.version}" for found in (*inputs, *transitive)})


def _measure(coordinates: str, scratch: Path) -> Jar:
    """Download one jar and return its entry for the lock."""
    content = download(coordinates, scratch).read_bytes()
    return Jar(coordinates, len(content), hashlib.sha256(content).hexdigest())


def _check_one_kafka(version: str, coordinates: Sequence[str]) -> None:
    """Raise `ClusterError` if Kafka's own jars come in several versions: such a server crashes at start."""
    versions = {item.rsplit(":", 1)[1] for item in coordinates if item.startswith("org.apache.kafka:")}
    if versions != {version}:
        raise ClusterError(f"Kafka's jars were resolved in several versions: {sorted(versions)}")


def _render(version: str, jars: Sequence[Jar]) -> str:
    """Write the text of a lock file."""
    entries = [{"coordinates": jar.coordinates, "size_bytes": jar.size_bytes, "sha256": jar.sha256} for jar in jars]
    document = {"kafka_version": version, "requested": list(requested(version)), "jar": entries}
    return "# Written by scripts/lock; do not edit.\n" + tomli_w.dumps(document)


def _lock(version: str, scratch: Path) -> str:
    """Resolve, download and hash the jars of a version; returns the text of its lock."""
    coordinates = _resolve(requested(version), scratch)
    _check_one_kafka(version, coordinates)
    with ThreadPoolExecutor(4) as pool:
        jars = list(pool.map(lambda item: _measure(item, scratch), coordinates))
    total_mb = sum(jar.size_bytes for jar in jars) / 1e6
    print(f"{lock_path(version).name}: {len(jars)} jars, {total_mb:.0f} MB", file=sys.stderr)
    return _render(version, jars)


def lock_kafka() -> None:
    """Lock all versions; writes nothing if any of them fails. Removes locks of versions that left the list."""
    with tempfile.TemporaryDirectory(prefix="kafka-lock-") as folder:
        locks = {lock_path(version): _lock(version, Path(folder)) for version in VERSIONS}
    for path in lock_path(VERSIONS[0]).parent.glob("*.toml"):
        path.unlink()
    for path, text in locks.items():
        path.write_text(text, encoding="utf-8")


CHOSEN = {
    registry.LOCK_PATH: ArchiveLock("Apicurio", "io.apicurio:apicurio-registry-app:3.3.3:tar.gz:all"),
    # What starts a node that indexes and searches. The rest, geographical tables above all, is two thirds of the archive.
    opensearch.LOCK_PATH: ArchiveLock(
        "OpenSearch",
        "org.opensearch.distribution.integ-test-zip:opensearch:3.6.0:zip",
        wanted=(
            "opensearch-*/LICENSE.txt",
            "opensearch-*/NOTICE.txt",
            "opensearch-*/lib/*.jar",
            "opensearch-*/agent/opensearch-agent-bootstrap-*.jar",
            "opensearch-*/modules/transport-netty4/*",
            "opensearch-*/plugins",
        ),
    ),
}
"""The versions are chosen here and nowhere else."""


def lock_archives() -> None:
    """Write the locks; a lock is not touched if its download fails."""
    for path, lock in CHOSEN.items():
        with tempfile.TemporaryDirectory(prefix=f"{lock.name.lower()}-lock-") as scratch:
            archive = download(lock.coordinates, Path(scratch)).read_bytes()
            fields = asdict(lock) | {"size_bytes": len(archive), "sha256": hashlib.sha256(archive).hexdigest()}
        document = {name: value for name, value in fields.items() if value}
        path.write_text("# Written by scripts/lock; do not edit.\n" + tomli_w.dumps(document), encoding="utf-8")


if __name__ == "__main__":
    lock_kafka()
    lock_archives()
