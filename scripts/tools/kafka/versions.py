"""The versions of Apache Kafka that can be started here, and their jars: checked, in the user's cache. Chosen only here.

The newest patch of every line since 3.7, the first whose brokers refuse both late Produce and late TxnOffsetCommit requests
of an aborted transaction (KIP-890). `scripts/lock` writes a lock for each version (`tools.locks`), and files whose sha256 is
not in it are refused. Downloads go through jgo, Maven's protocol in Python; a full cache needs neither jgo nor the network.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from platformdirs import user_cache_path


class ClusterError(Exception):
    """A local server, such as Kafka, cannot be set up, started or reached; the message says why and what to do."""


class NotFetched(ClusterError):
    """A file is not in the cache and cannot be downloaded."""


VERSIONS = (
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


def logs_with_log4j_1(version: str) -> bool:
    """Whether it logs through log4j 1, whose maintained successor is reload4j; log4j 2 since 4.0."""
    return int(version.split(".", 1)[0]) < 4


def announce(what: str, size_bytes: int) -> None:
    """Say on standard error that a download begins, which may take a while."""
    print(f"{what}: {size_bytes / 1e6:.0f} MB to download, once", file=sys.stderr, flush=True)


_LOCKS = Path(__file__).with_name("locks")
_PARALLEL_DOWNLOADS = 4  # a polite share of Maven Central; more is not faster for 44 MB in 46 files
_HTTP_TIMEOUT_S = 60  # jgo's own 10 s is short for a slow line


@dataclass(frozen=True, slots=True)
class Jar:
    """One jar of the lock: Maven coordinates `group:artifact:version`, size in bytes, sha256 in hex."""

    coordinates: str
    size_bytes: int
    sha256: str

    @property
    def file_name(self) -> str:
        """The file name in Maven's layout."""
        _, artifact, version = self.coordinates.split(":")
        return f"{artifact}-{version}.jar"


@dataclass(frozen=True, slots=True)
class JarLock:
    """A lock: Kafka's version, the requested artifacts, and every jar that they need."""

    kafka_version: str
    requested: tuple[str, ...]
    jars: tuple[Jar, ...]

    @classmethod
    def read(cls, version: str = DEFAULT) -> JarLock:
        """Read the lock of one of `versions.VERSIONS`."""
        document = tomllib.loads(lock_path(version).read_text(encoding="utf-8"))
        jars = tuple(Jar(**entry) for entry in document["jar"])
        return cls(document["kafka_version"], tuple(document["requested"]), jars)


def lock_path(version: str) -> Path:
    return _LOCKS / f"kafka-{version}.lock.toml"


def default_folder(lock: JarLock) -> Path:
    """Folder for the jars of this lock: in the user's cache, one folder per content of the lock."""
    content = hashlib.sha256("".join(jar.sha256 for jar in lock.jars).encode()).hexdigest()
    return user_cache_path("enricher") / f"kafka-{lock.kafka_version}-{content[:8]}"


def class_path(lock: JarLock, folder: Path) -> str:
    """Java's class path over the jars in `folder`; missing ones are fetched.

    Every jar is hashed on every call, which takes less than 0.1 s for 44 MB and tells a damaged cache from a broken Kafka.
    Raises `ClusterError` if a jar differs from the lock or cannot be fetched.
    """
    missing = [jar for jar in lock.jars if not (folder / jar.file_name).is_file()]
    if missing:
        _fetch(missing, folder)
    for jar in lock.jars:
        verify(jar, folder / jar.file_name)
    return os.pathsep.join(str(folder / jar.file_name) for jar in lock.jars)


def verify(jar: Jar, path: Path) -> None:
    """Raise `ClusterError` unless the file's hash equals the lock's."""
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != jar.sha256:
        message = (
            f"{path} is not the file that the lock names: sha256 {found}, expected {jar.sha256}. "
            f"The file is damaged or was changed. Remove it and start again to fetch it again."
        )
        raise ClusterError(message)


def _fetch(jars: Sequence[Jar], folder: Path) -> None:
    """Fetch into a scratch folder, verify, then move: an interrupted or wrong download never reaches the cache."""
    folder.mkdir(parents=True, exist_ok=True)
    announce("Jars from Maven Central", sum(jar.size_bytes for jar in jars))
    with (
        tempfile.TemporaryDirectory(prefix="fetch-", dir=folder) as scratch,
        ThreadPoolExecutor(_PARALLEL_DOWNLOADS) as pool,
    ):
        for jar, path in zip(jars, pool.map(lambda jar: download(jar.coordinates, Path(scratch)), jars), strict=True):
            verify(jar, path)
            path.replace(folder / jar.file_name)


def download(coordinates: str, scratch: Path) -> Path:
    """Fetch one file into a Maven layout under `scratch`; raises `NotFetched` if no repository has it.

    `coordinates`: `group:artifact:version[:packaging[:classifier]]`; without a packaging it is a jar.
    """
    # Imported here, because importing jgo and requests is slow and a full cache does not need them.
    try:
        from jgo.config import GlobalSettings  # noqa: PLC0415  see above
        from jgo.maven import MavenContext  # noqa: PLC0415  see above
        from requests import RequestException  # noqa: PLC0415  see above
    except ModuleNotFoundError as error:
        raise NotFetched(
            f"{coordinates} is not in the cache, and {error.name}, which fetches it, is not installed"
        ) from error

    group, artifact, version, *packed = coordinates.split(":")
    packaging, classifier = (*packed, *("jar", "")[len(packed) :])
    # Mirrors that the user named in jgo's own configuration file are used in addition to Maven Central.
    mirrors = GlobalSettings.load().repositories
    context = MavenContext(repo_cache=scratch, timeout=_HTTP_TIMEOUT_S)
    context.remote_repos = {**mirrors, **context.remote_repos}
    try:
        component = context.project(group, artifact).at_version(version)
        return Path(component.artifact(classifier, packaging).resolve())
    except (RequestException, RuntimeError) as error:
        message = (
            f"Could not fetch {coordinates}: {error}. It comes from Maven Central over HTTPS, once; behind a proxy set "
            "HTTPS_PROXY, with a certificate authority of your own set REQUESTS_CA_BUNDLE."
        )
        raise NotFetched(message) from error
