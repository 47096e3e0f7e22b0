# ruff: noqa: INP001  it is run, not imported
"""Image builds run this: of what NVIDIA's packages bring, only the libraries that ONNX Runtime can come to load stay.

Headers, static libraries and libraries that nothing of ours loads go. Then it is proven with `ldd` that whatever the rest
asks for is there: in these folders, in the system, or in the driver that the container runtime brings.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

LINKED = ("libcublas.so", "libcublasLt.so", "libcudart.so", "libcurand.so")
"""What libonnxruntime_providers_cuda.so names in its dynamic section (`readelf -d`, NEEDED): it does not load without."""

LOADED_LATER = ("libcudnn", "libnvrtc.so", "libnvrtc-builtins.so", "libnvJitLink.so")
"""What those open by name once they run. cuDNN is a front that opens its own parts, one for each kind of work, and compiles
kernels with NVRTC and nvJitLink; cuBLASLt and ONNX Runtime use NVRTC too."""

DROPPED_PROVIDER = "libonnxruntime_providers_tensorrt.so"
"""A provider that the worker never asks for, and whose TensorRT is not here."""

DRIVER = frozenset({"libcuda.so.1"})
"""What only the machine with the GPU has."""

_MISSING = re.compile(r"^\s*(\S+) => not found", re.MULTILINE)


def stays(path: Path) -> bool:
    """True for a library that can come to be loaded. Not cuFFT (Fourier operators), nvBLAS and cuFFTW (other interfaces)."""
    return ".so" in path.name and path.name.startswith((*LINKED, *LOADED_LATER))


def remove_the_rest(nvidia: Path) -> int:
    """Remove from NVIDIA's folders every file that does not stay; how many bytes that were."""
    removed = [path for path in nvidia.rglob("*") if path.is_file() and not stays(path)]
    size = sum(path.stat().st_size for path in removed)
    for path in removed:
        path.unlink()
    for folder in sorted((path for path in nvidia.rglob("*") if path.is_dir()), reverse=True):
        if not any(folder.iterdir()):
            folder.rmdir()
    return size


def absent(library: Path, folders: set[Path]) -> set[str]:
    """The names that the dynamic linker does not find for `library`, with `folders` on its path; the driver's left out."""
    environment = {**os.environ, "LD_LIBRARY_PATH": os.pathsep.join(map(str, sorted(folders)))}
    command = ["/usr/bin/ldd", str(library)]
    told = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)  # noqa: S603  our own arguments
    return set(_MISSING.findall(told.stdout)) - DRIVER


def main(site_packages: Path) -> int:
    """Remove, prove, and list what is left. 1 where something is missing."""
    nvidia, provider_folder = site_packages / "nvidia", site_packages / "onnxruntime" / "capi"
    removed = remove_the_rest(nvidia)
    (provider_folder / DROPPED_PROVIDER).unlink(missing_ok=True)
    libraries = sorted(path for path in nvidia.rglob("*.so*") if path.is_file())
    folders = {path.parent for path in libraries}
    problems = [
        f"{library.name} needs {', '.join(sorted(missing))}"
        for library in [provider_folder / "libonnxruntime_providers_cuda.so", *libraries]
        if (missing := absent(library, folders))
    ]
    problems += [f"no {name}" for name in (*LINKED, *LOADED_LATER) if not _any_named(name, libraries)]
    for path in libraries:
        sys.stdout.write(f"{path.stat().st_size / 1e6:8.1f} MB  {path.relative_to(nvidia)}\n")
    kept = sum(path.stat().st_size for path in libraries)
    sys.stdout.write(f"{kept / 1e6:8.1f} MB kept, {removed / 1e6:.1f} MB removed\n")
    sys.stderr.writelines(f"{problem}\n" for problem in problems)
    return 1 if problems else 0


def _any_named(name: str, libraries: list[Path]) -> bool:
    return any(path.name.startswith(name) for path in libraries)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
