"""The versions of Apache Kafka that can be started here, and what differs between them. Chosen only here.

The newest patch of every line since 2.5, the first whose brokers fence offsets in a transaction by the group's
generation (KIP-447). After a change run `scripts/lock`, which writes one lock per version.
"""

from __future__ import annotations

from tools.kafka.errors import ClusterError

VERSIONS = (
    "2.5.1",
    "2.6.3",
    "2.7.2",
    "2.8.2",
    "3.0.2",
    "3.1.2",
    "3.2.3",
    "3.3.2",
    "3.4.1",
    "3.5.2",
    "3.6.2",
    "3.7.2",
    "3.8.1",
    "3.9.2",
    "4.0.2",
    "4.1.2",
    "4.2.2",
    "4.3.1",
)
DEFAULT = "4.3.1"
OLDEST, NEWEST = VERSIONS[0], VERSIONS[-1]


def find(name: str) -> str:
    """Find a version by number, by line (`3.9`), or as `oldest`, `newest` or `default`.

    Raises `ClusterError`, which lists the versions, if there is none of that name.
    """
    names = {"oldest": OLDEST, "newest": NEWEST, "default": DEFAULT}
    lines = {version.rsplit(".", 1)[0]: version for version in VERSIONS}
    version = names.get(name) or lines.get(name, name)
    if version not in VERSIONS:
        raise ClusterError(f"there is no lock for Kafka {name}; choose one of {', '.join(VERSIONS)}")
    return version


def needs_zookeeper(version: str) -> bool:
    """Whether brokers of this version keep their metadata in ZooKeeper: KRaft is ready for production since 3.3."""
    return _line(version) < (3, 3)


def logs_with_log4j_1(version: str) -> bool:
    """Whether it logs through log4j 1, whose maintained successor is reload4j; log4j 2 since 4.0."""
    return _line(version) < (4, 0)


def _line(version: str) -> tuple[int, int]:
    major, minor, *_ = version.split(".")
    return int(major), int(minor)
