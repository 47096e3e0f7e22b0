"""For maintainers (`scripts/lock`): resolve Kafka's jars anew and write `kafka.lock.toml`.

Versions are chosen here and nowhere else.
"""

from __future__ import annotations

import hashlib
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import tomli_w
from jgo.maven import Dependency, MavenContext

from broker.errors import ClusterError
from broker.jars import LOCK_PATH, Jar, download

if TYPE_CHECKING:
    from collections.abc import Sequence

KAFKA_VERSION = "4.3.1"
LOG4J_VERSION = "2.25.4"  # what Kafka's own distribution ships; its published POM names no logging back end
REQUESTED = (
    f"org.apache.kafka:kafka_2.13:{KAFKA_VERSION}",
    # Named though kafka_2.13 needs it: left to the resolver it comes as 3.9.1, and the server dies on a missing method.
    f"org.apache.kafka:kafka-clients:{KAFKA_VERSION}",
    f"org.apache.logging.log4j:log4j-core:{LOG4J_VERSION}",
    f"org.apache.logging.log4j:log4j-slf4j-impl:{LOG4J_VERSION}",
)


def resolve(requested: Sequence[str], scratch: Path) -> list[str]:
    """Coordinates of the requested artifacts and of all that they need at run time, sorted."""
    context = MavenContext(repo_cache=scratch)
    wanted = []
    for coordinates in requested:
        group, artifact, version = coordinates.split(":")
        wanted.append(Dependency(context.project(group, artifact).at_version(version).artifact()))
    inputs, transitive = context.resolver.resolve(wanted)
    return sorted({f"{found.groupId}:{found.artifactId}:{found.version}" for found in (*inputs, *transitive)})


def measure(coordinates: str, scratch: Path) -> Jar:
    """Download one jar and describe it as the lock does."""
    content = download(coordinates, scratch).read_bytes()
    return Jar(coordinates, len(content), hashlib.sha256(content).hexdigest())


def check_one_kafka(coordinates: Sequence[str]) -> None:
    """Raise `ClusterError` when Kafka's own jars come in more than one version: such a server dies at start."""
    versions = {item.rsplit(":", 1)[1] for item in coordinates if item.startswith("org.apache.kafka:")}
    if versions != {KAFKA_VERSION}:
        raise ClusterError(f"Kafka's jars were resolved in several versions: {sorted(versions)}")


def render(jars: Sequence[Jar]) -> str:
    """Write the text of the lock file."""
    entries = [{"coordinates": jar.coordinates, "size_bytes": jar.size_bytes, "sha256": jar.sha256} for jar in jars]
    document = {"kafka_version": KAFKA_VERSION, "requested": list(REQUESTED), "jar": entries}
    return "# Written by scripts/lock; do not edit.\n" + tomli_w.dumps(document)


def main() -> None:
    """Resolve, download, hash and write; nothing is written when any of it fails."""
    with tempfile.TemporaryDirectory(prefix="kafka-lock-") as folder, ThreadPoolExecutor(4) as pool:
        scratch = Path(folder)
        coordinates = resolve(REQUESTED, scratch)
        check_one_kafka(coordinates)
        jars = list(pool.map(lambda item: measure(item, scratch), coordinates))
    LOCK_PATH.write_text(render(jars), encoding="utf-8")
    total_mb = sum(jar.size_bytes for jar in jars) / 1e6
    print(f"{LOCK_PATH.name}: Kafka {KAFKA_VERSION}, {len(jars)} jars, {total_mb:.0f} MB", file=sys.stderr)


if __name__ == "__main__":
    main()
