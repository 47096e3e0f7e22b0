"""The versions of CUDA, cuDNN and the driver, which many files name."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
DRIVER_OF = {13: 580}
"""The oldest driver for a major version of CUDA (the CUDA Toolkit's release notes)."""


def locked(package: str) -> int:
    """The major version of a package in the lock of the CUDA image."""
    lock = (ROOT / "scripts" / "locked" / "runtime-cuda.txt").read_text()
    (version,) = re.findall(rf"^{package}==(\d+)\.", lock, re.MULTILINE)
    return int(version)


def test_the_image_the_extra_and_the_pages_name_one_version_of_cuda() -> None:
    """It is that of the lock, of the runtime and of cuBLAS alike."""
    cuda, cudnn = locked("nvidia-cuda-runtime"), locked("nvidia-cudnn-cu13")
    extra = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["cuda"]
    assert cuda == locked("nvidia-cublas")
    assert f"nvidia-cublas>={cuda},<{cuda + 1}" in extra
    assert f"NVIDIA_REQUIRE_CUDA=cuda>={cuda}.0\n" in (ROOT / "deploy/docker/cuda.Dockerfile").read_text()
    assert f"CUDA {cuda} and cuDNN {cudnn}" in (ROOT / "deploy/docker/README.md").read_text()


def test_every_page_asks_for_the_driver_of_that_cuda() -> None:
    """Wherever a driver has a number, in pages, the chart and the images."""
    places = [ROOT / "README.md", *(each for each in (ROOT / "deploy").rglob("*") if each.is_file())]
    named = {
        each.relative_to(ROOT).as_posix(): set(re.findall(r"driver (\d{3})\b", each.read_text(errors="replace")))
        for each in places
    }
    named = {place: drivers for place, drivers in named.items() if drivers}
    assert {"README.md", "deploy/README.md", "deploy/docker/README.md", "deploy/docker/cuda.Dockerfile"} <= set(named)
    assert {str(DRIVER_OF[locked("nvidia-cuda-runtime")])} == set().union(*named.values())
