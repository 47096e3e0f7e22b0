"""`scripts/image`: what it asks a builder for. The builder is one that writes down what it was asked."""

from __future__ import annotations

import os
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="it is a script for bash")


@pytest.fixture
def builders(tmp_path: Path) -> Path:
    """A folder with builders that only say how they were called; docker's daemon is not there."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("docker", "podman", "buildah"):
        refusal = '[ "$1" != info ] || exit 1\n' if name == "docker" else '[ "$1" != info ] || exit 0\n'
        (folder / name).write_text(f'#!/usr/bin/env bash\n{refusal}echo {name} "$@"\n', encoding="utf-8")
        (folder / name).chmod(0o755)
    return folder


def image(builders: Path, *arguments: str | Path, root: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run the script of a tree with those builders first on the path."""
    environment = {**os.environ, "PATH": f"{builders}{os.pathsep}{os.environ['PATH']}"}
    command = [str(root / "scripts" / "image"), *map(str, arguments)]
    return subprocess.run(command, env=environment, cwd="/", capture_output=True, text=True, check=False)


def test_it_builds_with_the_first_builder_that_works(builders: Path) -> None:
    """A docker without its daemon does not. The name is the one that the chart looks for."""
    told = image(builders, "cpu")
    assert told.returncode == 0, told.stderr
    assert told.stdout.startswith(f"podman build -f {ROOT}/deploy/docker/cpu.Dockerfile -t enricher:{VERSION}-cpu ")
    assert told.stdout.endswith(f" {ROOT}\n")


def test_what_is_said_goes_to_the_builder(builders: Path, tmp_path: Path) -> None:
    """Settings and authorities as secrets, another base by name, the rest as it is."""
    ca = tmp_path / "ca.pem"
    ca.touch()
    more = ("--base", "mirror/python@sha256:1", "--ca", ca, "--pip-conf", ca, "--tag", "mine")
    told = image(builders, "cuda", "--builder", "buildah", *more, "--", "--isolation", "chroot").stdout
    assert told.startswith(f"buildah build --layers -f {ROOT}/deploy/docker/cuda.Dockerfile -t mine ")
    assert "--build-context python:3.11-slim-bookworm=docker-image://mirror/python@sha256:1" in told
    assert f"--secret id=ca,src={ca} --secret id=pip.conf,src={ca}" in told
    assert told.endswith(f"--isolation chroot {ROOT}\n")


def test_a_model_goes_over_the_image_in_a_second_build(builders: Path, tmp_path: Path) -> None:
    """With the model's folder as its context, and nothing of the project."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "manifest.json").touch()
    first, second = image(builders, "cuda", "--model", tmp_path / "mine").stdout.splitlines()
    assert f"-t enricher:{VERSION}-cuda " in first
    assert f"model.Dockerfile -t enricher:{VERSION}-cuda-mine --build-arg IMAGE=enricher:{VERSION}-cuda" in second
    assert second.endswith(f"--build-arg MODEL=mine {tmp_path / 'mine'}")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "cpu or cuda?"),
        (["cpu", "--ca", "/not/there"], "/not/there cannot be read"),
        (["cpu", "--model", "/"], "has no manifest.json"),
        (["cpu", "--builder", "kaniko"], "unknown builder kaniko"),
        (["cpu", "--tag"], "--tag needs a value"),
    ],
)
def test_what_cannot_be_meant_is_refused(builders: Path, arguments: list[str], said: str) -> None:
    """Before anything is built."""
    told = image(builders, *arguments)
    assert told.returncode == 1
    assert said in told.stderr
    assert told.stdout == ""
