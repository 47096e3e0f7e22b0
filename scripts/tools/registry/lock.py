"""Downloads the archive of the chosen version and writes its lock, for maintainers (`scripts/lock`)."""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path

import tomli_w

from tools.kafka.meter import Meter
from tools.registry.archive import LOCK_PATH, ArchiveLock, content_digest, download, unpack

COORDINATES = "io.apicurio:apicurio-registry-app:3.3.3:tar.gz:all"
"""The version is chosen here and nowhere else."""


def main() -> None:
    """Write the lock; writes nothing if the download fails."""
    unknown = ArchiveLock(COORDINATES, 0, "", "")
    with tempfile.TemporaryDirectory(prefix="apicurio-lock-") as scratch:
        archive, content = Path(scratch) / "archive", Path(scratch) / "content"
        with Meter("The schema registry from Maven Central", unknown.size_bytes) as meter:
            download(unknown.path, archive, meter)
        unpack(archive, content)
        document = {
            "coordinates": COORDINATES,
            "size_bytes": archive.stat().st_size,
            "sha256": hashlib.sha256(archive.read_bytes()).hexdigest(),
            "content_sha256": content_digest(content),
        }
    LOCK_PATH.write_text("# Written by scripts/lock; do not edit.\n" + tomli_w.dumps(document), encoding="utf-8")


if __name__ == "__main__":
    main()
