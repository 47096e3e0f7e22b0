"""`scripts/bench carry`: one archive with the packages that a GPU machine lacks, where none can be installed.

Made for transfers that are limited: ONNX Runtime's wheel has 256 MB, and with the code of one GPU the archive has a fifth.
That code is zeroed where it is, so that the library keeps its layout and packs to almost nothing. The formats are ELF's and
that of CUDA's fat binaries: a header (magic, version, its own size, the size of what follows), then entries (kind, version,
own size, size of the code; 28 bytes in, the architecture).
"""

from __future__ import annotations

import re
import struct
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from enricher.distribution import DISTRIBUTION, installed_version
from tools import SCRIPTS

LOCK = SCRIPTS / "locked" / "runtime-cuda.txt"
PROVIDER = "onnxruntime/capi/libonnxruntime_providers_cuda.so"
UNUSED = ("libonnxruntime.so*", "libonnxruntime_providers_*tensorrt*")
"""Parts for programs in C, and for a provider that no worker uses."""
LACKING = (
    *("onnxruntime-gpu", "orjson", "pydantic", "pydantic-core", "pydantic-settings", "python-dotenv"),
    *("platformdirs", "annotated-types", "typing-inspection", "opentelemetry-api"),
)
"""Packages that a machine which trains models with PyTorch and transformers lacks."""
PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_27_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64")


def main(
    *,
    out: Annotated[Path, typer.Option(help="The archive to write.", dir_okay=False)] = Path("gpu-site.tar.xz"),
    python: Annotated[str, typer.Option(help="The Python of the GPU machine.")] = "3.12",
    architecture: Annotated[int, typer.Option(help="Its GPU: 75 T4, 80 A100, 86 A10, 89 L4, 90 H100 and H200.")] = 90,
    lone_kernels: Annotated[
        bool, typer.Option(help="Keep kernels that exist for this GPU alone: if ONNX Runtime misses one.")
    ] = False,
    package: Annotated[list[str] | None, typer.Option(help=f"Instead of {', '.join(LACKING)}.")] = None,
) -> None:
    """Download the locked packages, remove the code of other GPUs from ONNX Runtime, and pack them.

    There: `python3 -m tarfile -e gpu-site.tar.xz SITE`, and SITE first on PYTHONPATH. scripts/tools/bench/README.md has
    the whole.
    """
    if not out.parent.is_dir():
        raise typer.BadParameter(f"{out.parent} is no folder")
    with tempfile.TemporaryDirectory(prefix="enricher-carry-") as scratch:
        site, wanted = Path(scratch, "site"), Path(scratch, "wanted.txt")
        wanted.write_text("".join(locked(name) for name in package or LACKING))
        _install(wanted, site, python)
        for pattern in UNUSED:
            for path in (site / PROVIDER).parent.glob(pattern):
                path.unlink()
        if (site / PROVIDER).exists():
            library = bytearray((site / PROVIDER).read_bytes())
            try:
                kept = trim(library, architecture, lone=lone_kernels)
            except ValueError as error:
                raise typer.BadParameter(f"--architecture {architecture}: {error}") from error
            (site / PROVIDER).write_bytes(library)
            typer.echo(f"code for sm{architecture}: {kept / 1e6:.1f} MB", err=True)
        # The checkout is imported, not installed, and commands ask for its version.
        about = site / f"{DISTRIBUTION.replace('-', '_')}-{installed_version()}.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {DISTRIBUTION}\nVersion: {installed_version()}\n"
        )
        with tarfile.open(out, "w:xz") as packed:
            packed.add(site, ".")
    typer.echo(f"written: {out}, {out.stat().st_size / 2**20:.1f} MiB", err=True)


def locked(name: str) -> str:
    """The package's lines in the lock, hashes included. Raises BadParameter if it is not there."""
    found = re.search(rf"^{re.escape(name)}==(?:.*\\\n)*.*\n", LOCK.read_text(), re.MULTILINE)
    if found is None:
        raise typer.BadParameter(f"{name} is not in {LOCK.name}")
    return found[0]


def _install(wanted: Path, site: Path, python: str) -> None:
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--no-deps",
        "--no-compile",
    ]
    of_the_machine = ["--only-binary=:all:", "--implementation", "cp", "--python-version", python]
    platforms = [f"--platform={platform}" for platform in PLATFORMS]
    command = [
        *pip,
        "--require-hashes",
        *of_the_machine,
        *platforms,
        "--target",
        str(site),
        "--requirement",
        str(wanted),
    ]
    if subprocess.run(command, check=False).returncode:
        typer.echo("pip could not bring the packages (its message is above).", err=True)
        raise typer.Exit(1)


# ---- the code of other GPUs


SECTION = ".nv_fatbin"
_MAGIC = 0xBA55ED50
_ALIGNED_BYTES = 8


@dataclass(frozen=True, slots=True)
class Code:
    """Machine code or PTX for one architecture, such as 90; a half-open range of the library."""

    architecture: int
    start: int
    stop: int


def trim(library: bytearray, architecture: int, *, lone: bool) -> int:
    """Zero the code of all architectures but one; returns the bytes of code that are left.

    `lone` keeps what exists for this architecture only: for sm90 these are kernels of generative models, which no encoder
    runs. Raises ValueError where no code is left.
    """
    kept = 0
    for binary in _fat_binaries(library):
        others = any(code.architecture != architecture for code in binary)
        for code in binary:
            if code.architecture == architecture and (others or lone):
                kept += code.stop - code.start
            else:
                library[code.start : code.stop] = bytes(code.stop - code.start)
    if not kept:
        raise ValueError(f"there is no code for sm{architecture}")
    return kept


def _fat_binaries(library: bytearray) -> Iterator[list[Code]]:
    place, end = _section(library)
    while place < end:
        magic, _, header, size = struct.unpack_from("<IHHQ", library, place)
        if magic != _MAGIC:  # between two
            place += _ALIGNED_BYTES
            continue
        place, stop, found = place + header, place + header + size, list[Code]()
        while place < stop:
            _, _, header, size = struct.unpack_from("<HHIQ", library, place)
            (architecture,) = struct.unpack_from("<I", library, place + 28)
            found.append(Code(architecture, place + header, place + header + size))
            place += header + size
        yield found
        place = -(-stop // _ALIGNED_BYTES) * _ALIGNED_BYTES


def _section(library: bytearray) -> tuple[int, int]:
    """Start and stop of each fat binary. Raises ValueError if it is no such library."""
    if library[:5] != b"\x7fELF\x02":
        raise ValueError("not a 64-bit ELF library")
    (table,) = struct.unpack_from("<Q", library, 0x28)
    size, count, names = struct.unpack_from("<HHH", library, 0x3A)
    sections = [struct.unpack_from("<IIQQQQ", library, table + index * size) for index in range(count)]
    for name, _, _, _, start, length in sections:
        begins = sections[names][4] + name
        if library[begins : library.index(0, begins)] == SECTION.encode():
            return start, start + length
    raise ValueError(f"no section {SECTION}")


if __name__ == "__main__":
    typer.run(main)
