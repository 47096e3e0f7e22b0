"""Images and hosted workflows, where neither is built or run: descriptions, and what `scripts/image` asks a builder for.

The builder is one that writes down what it was asked.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy" / "docker"
KINDS = ("cpu", "cuda")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
ALL_FILES = sorted(FOLDER.glob("*.Dockerfile"))
_CONTINUED = re.compile(r"\\\n")
_LOCKED = re.compile(r"^([a-z0-9][a-z0-9._-]*)==(\S+)([^\n]*)\n((?: +--hash=\S+(?: \\)?\n)+)", re.MULTILINE)


def instructions(path: Path) -> list[tuple[str, str]]:
    """Each instruction of a Dockerfile with its arguments, comments left out and continued lines joined."""
    text = "".join(line for line in path.read_text(encoding="utf-8").splitlines(keepends=True) if line[0] != "#")
    lines = [line.split(maxsplit=1) for line in _CONTINUED.sub(" ", text).splitlines() if line.strip()]
    return [(word.upper(), rest) for word, rest in lines]


def last_stage(path: Path) -> list[tuple[str, str]]:
    """The instructions of what ships."""
    found = instructions(path)
    return found[max(place for place, (word, _) in enumerate(found) if word == "FROM") :]


def copied(path: Path) -> Iterator[str]:
    """The sources in the build context that a Dockerfile copies."""
    for word, rest in instructions(path):
        if word in {"COPY", "ADD"} and "--from=" not in rest:
            yield from [part for part in rest.split() if not part.startswith("--")][:-1]


def locked(kind: str) -> dict[str, list[tuple[str, str]]]:
    """Versions with their markers, of each package that the lock of that name has: some differ between Pythons."""
    text = (ROOT / "scripts" / "locked" / f"{kind}.txt").read_text(encoding="utf-8")
    found: dict[str, list[tuple[str, str]]] = {}
    for name, version, marker, _ in _LOCKED.findall(text):
        found.setdefault(name, []).append((version, marker.strip(" \\")))
    return found


@pytest.mark.parametrize("path", ALL_FILES, ids=lambda path: path.name)
def test_hadolint_finds_nothing(path: Path) -> None:
    """Its rules on tags, caches, users, shells and deprecated words; none is switched off."""
    hadolint = Path(sys.executable).parent / "hadolint"
    told = subprocess.run([hadolint, path], capture_output=True, text=True, check=False)
    assert (0, "") == (told.returncode, told.stdout)
    assert "hadolint ignore" not in path.read_text(encoding="utf-8")


@pytest.mark.parametrize("kind", KINDS)
def test_only_what_is_locked_is_installed_and_its_hashes_count(kind: str) -> None:
    """One installation from the lock, with hashes and without building; the project itself without an index."""
    installs = [
        rest for word, rest in instructions(FOLDER / f"{kind}.Dockerfile") if word == "RUN" and " install " in rest
    ]
    packages, program, folder = installs
    assert "--require-hashes" in packages
    assert "--only-binary :all:" in packages
    assert {"--no-index", "--no-deps", "--no-build-isolation"} <= set(program.split())
    assert "install --directory" in folder
    assert not any("apt" in rest.split() or "curl" in rest for _, rest in instructions(FOLDER / f"{kind}.Dockerfile"))
    assert (f"scripts/locked/runtime-{kind}.txt") in copied(FOLDER / f"{kind}.Dockerfile")


@pytest.mark.parametrize("name", ["runtime", "runtime-cpu", "runtime-cuda", "demo"])
def test_what_runs_has_the_versions_that_the_tests_ran_with(name: str) -> None:
    """Whatever development.txt has, the images and the demo have in the same version."""
    tested, running = locked("development"), locked(name)
    common = tested.keys() & running.keys()
    assert len(common) > 40
    versions = {
        each: ({version for version, _ in running[each]}, {version for version, _ in tested[each]}) for each in common
    }
    assert {} == {each: both for each, both in versions.items() if not both[0] <= both[1]}


def test_the_image_for_cpus_has_nothing_of_cuda() -> None:
    """No NVIDIA package, and ONNX Runtime without its CUDA provider, on every machine."""
    entries = locked("runtime-cpu")
    assert [] == [name for name in entries if name.startswith(("nvidia", "cuda"))]
    assert ["; sys_platform == 'none'"] == [marker for _, marker in entries["onnxruntime-gpu"]]
    assert [""] == [marker for _, marker in entries["onnxruntime"]]
    assert any(name.startswith("nvidia") for name in locked("runtime-cuda"))


@pytest.mark.parametrize("kind", KINDS)
def test_what_ships_is_the_worker_alone(kind: str) -> None:
    """Copied together from other stages, for a numeric user who is not root: `runAsNonRoot` can judge no names.

    Its commands are JSON, so that no shell stands between the signal and the worker. ONNX Runtime's telemetry is on where
    its variable is not set before the library is loaded.
    """
    stage = last_stage(FOLDER / f"{kind}.Dockerfile")
    words = dict(stage)
    assert ('["enricher"]', '["run"]', "SIGTERM") == (words["ENTRYPOINT"], words["CMD"], words["STOPSIGNAL"])
    assert "HEALTHCHECK" not in words
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", words["USER"])
    assert {"ORT_DISABLE_TELEMETRY=1", "HOME=/tmp"} <= set(words["ENV"].split())
    assert all(rest.startswith("--from=") for word, rest in stage if word == "COPY")
    assert ["groupadd"] == [rest.split()[0] for word, rest in stage if word == "RUN"]
    assert 3 < len(instructions(FOLDER / f"{kind}.Dockerfile")) - len(stage)


@pytest.mark.parametrize("kind", KINDS)
def test_both_images_are_built_on_the_same_pinned_python(kind: str) -> None:
    """A tag with a version, the same in every stage and in the label, and one that the project supports."""
    path = FOLDER / f"{kind}.Dockerfile"
    stages = set(re.findall(r"^FROM \S+ AS (\S+)", path.read_text(encoding="utf-8"), re.MULTILINE))
    bases = {rest.split()[0] for word, rest in instructions(path) if word == "FROM"} - stages
    (base,) = bases
    assert f'base.name="docker.io/library/{base}"' in dict(last_stage(path))["LABEL"]
    version = re.fullmatch(r"python:(3\.\d+)-slim-[a-z]+", base)
    assert version is not None
    assert f"readonly base_image={base}\n" in (ROOT / "scripts" / "image").read_text(encoding="utf-8")
    assert PROJECT["requires-python"] == ">=3.11"
    folders = set(re.findall(r"lib/python(3\.\d+)/site-packages", path.read_text(encoding="utf-8")))
    assert {version[1]} == folders


@pytest.mark.parametrize("path", ALL_FILES, ids=lambda path: path.name)
def test_the_version_is_the_projects(path: Path) -> None:
    """In labels, and in the tags that comments and defaults name."""
    text = path.read_text(encoding="utf-8")
    assert {PROJECT["version"]} == set(re.findall(r"(?:enricher:|image\.version=\")(\d[0-9.]*\d)", text))


def major(package: str) -> int:
    """The major version of a package in the lock of the CUDA image."""
    [(version, _)] = locked("runtime-cuda")[package]
    return int(version.partition(".")[0])


def test_the_image_the_extra_and_the_pages_name_one_version_of_cuda() -> None:
    """It is that of the lock, of the runtime and of cuBLAS alike."""
    cuda, cudnn = major("nvidia-cuda-runtime"), major("nvidia-cudnn-cu13")
    assert cuda == major("nvidia-cublas")
    assert f"nvidia-cublas>={cuda},<{cuda + 1}" in PROJECT["optional-dependencies"]["cuda"]
    assert f"NVIDIA_REQUIRE_CUDA=cuda>={cuda}.0\n" in (FOLDER / "cuda.Dockerfile").read_text("utf-8")
    assert f"CUDA {cuda} and cuDNN {cudnn}" in (FOLDER / "README.md").read_text("utf-8")


def test_zizmor_finds_nothing_in_the_workflows() -> None:
    """Injected text, rights that are too wide, credentials that stay, actions by a tag, which somebody could move.

    These are its strictest audits that need no network.
    """
    program = Path(sys.executable).with_name("zizmor")
    if not program.exists():
        pytest.skip("zizmor is not installed")
    command = [str(program), "--offline", "--no-progress", "--persona", "pedantic", str(ROOT / ".github")]
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stdout


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


def image(builders: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run `scripts/image` with those builders first on the path."""
    environment = {**os.environ, "PATH": f"{builders}{os.pathsep}{os.environ['PATH']}"}
    command = [str(ROOT / "scripts" / "image"), *map(str, arguments)]
    return subprocess.run(command, env=environment, cwd="/", capture_output=True, text=True, check=False)


def test_it_builds_with_the_first_builder_that_works(builders: Path) -> None:
    """A docker without its daemon does not. The name is the one that the chart looks for."""
    told = image(builders, "cpu")
    assert told.returncode == 0, told.stderr
    assert told.stdout.startswith(
        f"podman build -f {ROOT}/deploy/docker/cpu.Dockerfile -t enricher:{PROJECT['version']}-cpu "
    )
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
    assert f"-t enricher:{PROJECT['version']}-cuda " in first
    assert (
        f"model.Dockerfile -t enricher:{PROJECT['version']}-cuda-mine --build-arg IMAGE=enricher:{PROJECT['version']}-cuda"
        in second
    )
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
