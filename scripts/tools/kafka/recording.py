"""Records the archive of a version's classes, from a broker that serves a first transaction and ends in order."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from tools.kafka.class_archive import ClassArchive
from tools.kafka.cluster import Cluster
from tools.kafka.errors import ClusterError
from tools.kafka.jars import JarLock, default_folder

_WRITTEN_TIMEOUT_S = 300.0  # 10 s are usual


def record(version: str) -> None:
    """Record the archive unless there is one, in about 25 s of processor time. Raises `ClusterError` if none is written."""
    jars = default_folder(JarLock.read(version))
    kept = ClassArchive(jars)
    if kept.path.exists():
        return
    jars.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix="classes-", dir=jars) as scratch:
        recorded = ClassArchive(Path(scratch), records=True)
        with Cluster(version=version, archive=recorded) as cluster:
            cluster.warm_up()
            cluster.nodes[0].stop(_WRITTEN_TIMEOUT_S)
        if not recorded.path.exists():
            raise ClusterError(
                f"Java has not written the classes of Kafka {version}; brokers start without them, slower"
            )
        recorded.path.replace(kept.path)
