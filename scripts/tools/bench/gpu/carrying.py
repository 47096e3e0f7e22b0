"""`scripts/bench-gpu carry`: one archive with the packages that a GPU machine lacks, where none can be installed.

Made for transfers that are limited: ONNX Runtime's wheel has 256 MB, and with the code of one GPU the archive has a fifth.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from enricher.distribution import DISTRIBUTION, installed_version
from tools import SCRIPTS
from tools.bench.gpu.trimming import trim

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
    out: Annotated[Path, typer.Argument(help="The archive to write.", dir_okay=False)] = Path("gpu-site.tar.xz"),
    *,
    python: Annotated[str, typer.Option(help="The Python of the GPU machine.")] = "3.12",
    architecture: Annotated[int, typer.Option(help="Its GPU: 75 T4, 80 A100, 86 A10, 89 L4, 90 H100 and H200.")] = 90,
    lone_kernels: Annotated[
        bool, typer.Option(help="Keep kernels that exist for this GPU alone: if ONNX Runtime misses one.")
    ] = False,
    package: Annotated[list[str] | None, typer.Option(help=f"Instead of {', '.join(LACKING)}.")] = None,
) -> None:
    """Download the locked packages, remove the code of other GPUs from ONNX Runtime, and pack them.

    There: `python3 -m tarfile -e gpu-site.tar.xz SITE`, and SITE first on PYTHONPATH. scripts/tools/bench/gpu/README.md has
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


if __name__ == "__main__":
    typer.run(main)
