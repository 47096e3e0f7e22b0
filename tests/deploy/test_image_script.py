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
    more = (
        "--base",
        "mirror/python@sha256:1",
        "--ca",
        ca,
        "--pip-conf",
        ca,
        "--tag",
        "mine",
        "--",
        "--isolation",
        "chroot",
    )
    told = image(builders, "cuda", "--builder", "buildah", *more).stdout
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
        (["gpu"], "cpu or cuda?"),
        (["cpu", "--ca", "/not/there"], "/not/there cannot be read"),
        (["cpu", "--model", "/"], "has no manifest.json"),
        (["cpu", "--builder", "kaniko"], "unknown builder kaniko"),
        (["cpu", "--color", "red"], "unknown argument --color"),
        (["cpu", "--tag"], "--tag needs a value"),
    ],
)
def test_what_cannot_be_meant_is_refused(builders: Path, arguments: list[str], said: str) -> None:
    """Before anything is built."""
    told = image(builders, *arguments)
    assert told.returncode == 1
    assert said in told.stderr
    assert told.stdout == ""


DIGEST = f"sha256:{'0123456789abcdef' * 4}"


def own_root(tmp_path: Path) -> Path:
    """The script in a tree of the test's own, where it may write."""
    root = tmp_path / "root"
    for name in ("scripts/image", "scripts/environment.sh", "pyproject.toml"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, root / name)
    (root / "scripts" / "locked").mkdir()
    return root


def registry_tells(builders: Path, digest: str) -> None:
    """A podman that has pulled the image."""
    text = f'case $1$2 in imageinspect) echo "docker.io/library/python@{digest}" ;; *) echo podman "$@" ;; esac'
    (builders / "podman").write_text(f"#!/usr/bin/env bash\n{text}\n", encoding="utf-8")


def test_a_pinned_base_is_what_later_builds_take(builders: Path, tmp_path: Path) -> None:
    """Until it is pinned they say that the tag counts; another base that is named wins."""
    root = own_root(tmp_path)
    registry_tells(builders, DIGEST)
    before = image(builders, "cpu", root=root)
    assert "--build-context" not in before.stdout
    assert "by tag" in before.stderr
    assert 0 == image(builders, "pin", root=root).returncode
    assert f"docker.io/library/python@{DIGEST}\n" == (root / "scripts" / "locked" / "base-image.txt").read_text("utf-8")
    pinned = f"--build-context python:3.11-slim-bookworm=docker-image://docker.io/library/python@{DIGEST}"
    assert pinned in image(builders, "cpu", root=root).stdout
    assert pinned not in image(builders, "cpu", "--base", "mine@sha256:1", root=root).stdout


def test_what_is_no_digest_is_not_pinned(builders: Path, tmp_path: Path) -> None:
    """Neither from the registry nor in the file."""
    root = own_root(tmp_path)
    registry_tells(builders, "sha256:guessed")
    told = image(builders, "pin", root=root)
    assert told.returncode != 0
    assert "reported no digest" in told.stderr
    file = root / "scripts" / "locked" / "base-image.txt"
    assert not file.exists()
    file.write_text("python:latest\n", "utf-8")
    told = image(builders, "cpu", root=root)
    assert (1, "", True) == (told.returncode, told.stdout, "contains no digest" in told.stderr)
