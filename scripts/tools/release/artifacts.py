"""Builds sdist, wheel, SBOMs and checksums of HEAD: from the commit alone, so that the same commit gives the same bytes."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from packaging.markers import Marker

SOURCES = ("LICENSE", "README.md", "enricher", "pyproject.toml")
"""The files that are released, as in the images. Setuptools would add tests that cannot run alone."""
SBOMS = {
    "sbom.cdx.json": "scripts/locked/runtime.txt",
    "sbom-image-cpu.cdx.json": "scripts/locked/runtime-cpu.txt",
    "sbom-image-cuda.cdx.json": "scripts/locked/runtime-cuda.txt",
}
"""The needs of the wheel, and the Python packages of the images, by the locks that they are installed from.

The packages of the images' base are missing: only a container engine can list them.
"""
IMAGE = {
    "implementation_name": "cpython",
    "platform_machine": "x86_64",
    "platform_python_implementation": "CPython",
    "platform_system": "Linux",
    "python_full_version": "3.11.0",
    "python_version": "3.11",
    "sys_platform": "linux",
}
"""The environment in which the images' locks are installed, as markers name it."""


class NotReleasable(Exception):
    """The message says why, and what to do."""


def build(out: Path) -> None:
    """Write all files into `out`, which holds nothing yet. Raises NotReleasable."""
    if out.exists() and any(out.iterdir()):
        raise NotReleasable(f"{out} is not empty: remove it, or name another folder")
    build_packages(out)
    with _checked_out("pyproject.toml", *SBOMS.values()) as folder:
        project = ["--pyproject", str(folder / "pyproject.toml"), "--output-reproducible"]
        reader = [sys.executable, "-W", "ignore::UserWarning", "-m", "cyclonedx_py", "requirements"]
        for name, lock in SBOMS.items():
            if "image" in name:
                path = folder / lock
                path.write_text(installed_in_images(path.read_text("utf-8")), "utf-8")
            run(*reader, str(folder / lock), *project, "--output-file", str(out / name), epoch_s=commit_time_s())
    sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in sorted(out.iterdir())]
    (out / "SHA256SUMS").write_text("".join(sums), encoding="utf-8")
    sys.stdout.writelines(sums)


def installed_in_images(lock: str) -> str:
    """The part of a lock that is for the images. It has one requirement a paragraph, with a marker behind ` ; `."""
    requirements = re.split(r"^(?=\S)", lock, flags=re.MULTILINE)
    return "".join(each for each in requirements if _is_in_images(each))


def _is_in_images(requirement: str) -> bool:
    marker = re.match(r"[^#\n]+? ; (.+?)(?: \\)?\n", requirement)
    return not marker or Marker(marker[1]).evaluate(IMAGE)


def build_packages(out: Path) -> None:
    """Write sdist and wheel of HEAD into `out`. Raises NotReleasable."""
    epoch_s = commit_time_s()
    with _checked_out(*SOURCES) as folder:
        _uv_build("--sdist", folder, out, epoch_s)
        (sdist,) = out.glob("*.tar.gz")
        normalise(sdist, epoch_s)
        _uv_build("--wheel", sdist, out, epoch_s)


def normalise(sdist: Path, epoch_s: int) -> None:
    """Sort the members of an archive, and give all the same time and owner: setuptools takes these from the machine."""
    packed = io.BytesIO()
    with tarfile.open(sdist) as old, tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as new:
        for member in sorted(old.getmembers(), key=lambda each: each.name):
            plain = tarfile.TarInfo(member.name)
            plain.type, plain.size, plain.mtime = member.type, member.size, epoch_s
            plain.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            new.addfile(plain, old.extractfile(member) if member.isfile() else None)
    with sdist.open("wb") as file, gzip.GzipFile("", "wb", fileobj=file, mtime=epoch_s) as stream:
        stream.write(packed.getvalue())


def commit_time_s() -> int:
    """The time of HEAD, which stands for the time of the build."""
    return int(run("git", "log", "-1", "--format=%ct"))


@contextmanager
def _checked_out(*paths: str) -> Iterator[Path]:
    """A folder with these files of HEAD, whatever the working tree holds."""
    archive = run("git", "-c", "tar.umask=0022", "archive", "HEAD", *paths)
    with tempfile.TemporaryDirectory(prefix="enricher-release-") as folder:
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            files.extractall(folder, filter="data")
        yield Path(folder)


def _uv_build(kind: str, source: Path, out: Path, epoch_s: int) -> None:
    """The lock holds what the build needs, so it needs no network."""
    uv = [sys.executable, "-m", "uv", "build", kind, "--no-build-isolation", "--python", sys.executable, "--offline"]
    run(*uv, "--quiet", "--no-create-gitignore", "--out-dir", str(out), str(source), epoch_s=epoch_s)


def run(*command: str, epoch_s: int = 0) -> bytes:
    """The output of a program. Raises NotReleasable if it fails."""
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch_s)}
    ended = subprocess.run(command, stdout=subprocess.PIPE, env=environment, umask=0o022, check=False)
    if ended.returncode:
        raise NotReleasable(f"{' '.join(command[:6])} ... failed (its message is above)")
    return ended.stdout
