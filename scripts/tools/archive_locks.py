"""Downloads the archives of the chosen versions and writes their locks, for maintainers (`scripts/lock`)."""

from __future__ import annotations

import hashlib
import tempfile
from dataclasses import asdict
from pathlib import Path

import tomli_w

from tools import opensearch, registry
from tools.archives import ArchiveLock, content_digest, download, unpack

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


def main() -> None:
    """Write the locks; a lock is not touched if its download fails."""
    for path, lock in CHOSEN.items():
        with tempfile.TemporaryDirectory(prefix=f"{lock.name.lower()}-lock-") as scratch:
            archive, content = Path(scratch) / "archive", Path(scratch) / "content"
            download(lock, archive)
            unpack(lock, archive, content)
            fields = asdict(lock) | {
                "size_bytes": archive.stat().st_size,
                "sha256": hashlib.sha256(archive.read_bytes()).hexdigest(),
                "content_sha256": content_digest(content),
            }
        document = {name: value for name, value in fields.items() if value}
        path.write_text("# Written by scripts/lock; do not edit.\n" + tomli_w.dumps(document), encoding="utf-8")


if __name__ == "__main__":
    main()
