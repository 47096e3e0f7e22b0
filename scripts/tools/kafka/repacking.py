"""Writes Kafka's jars again for a machine that cannot fetch them: small once they are packed together, for Linux on x86-64.

Only `scripts/bench carry` and `scripts/lock` use it. The written jars have a lock: `versions.CARRIED_LOCK`.
"""

from __future__ import annotations

import hashlib
import zipfile
from dataclasses import replace
from pathlib import Path

from tools.kafka.versions import DEFAULT, Jar, JarLock, class_path, default_folder, lock_path

_NATIVE = (".so", ".dylib", ".jnilib", ".dll", ".a")
_OURS = ("linux/amd64/", "linux/x86_64/")
_UNIX = 3
"""The system on which a zip file says that it was written; Python writes the one that it runs on."""


def repack_kafka(folder: Path) -> JarLock:
    """Write the jars of version `DEFAULT` into `folder`; returns their lock. Raises ClusterError as `class_path` does."""
    lock = JarLock.of(lock_path(DEFAULT))
    source = default_folder(lock)
    class_path(lock, source)
    return replace(lock, jars=tuple(repack(jar, source, folder) for jar in lock.jars))


def repack(jar: Jar, source: Path, folder: Path) -> Jar:
    """Write a jar of `source` without compression and without libraries for other systems; returns its size and hash.

    The same jar gives the same bytes everywhere. xz then packs those of 4.3.1 to 14 MiB; as Maven has them they are 43.
    """
    target = folder / jar.file_name
    with zipfile.ZipFile(source / jar.file_name) as packed, zipfile.ZipFile(target, "w") as stored:
        for each in packed.infolist():
            if not is_foreign(each.filename):
                entry = zipfile.ZipInfo(each.filename, each.date_time)
                entry.create_system = _UNIX
                stored.writestr(entry, packed.read(each), zipfile.ZIP_STORED)
    content = target.read_bytes()
    return Jar(jar.coordinates, len(content), hashlib.sha256(content).hexdigest())


def is_foreign(name: str) -> bool:
    """Whether a file of a jar is a library that Linux on x86-64 does not load."""
    return name.endswith(_NATIVE) and not any(ours in name.lower() for ours in _OURS)
