"""Helm and Prometheus' programs for the tests of deploy/: from PATH, or built with Go into the user's cache.

    python -m tools.go_programs [NAME ...]

Each is built inside upstream's own module, so its go.mod and go.sum choose and verify all dependencies. Tests build nothing:
they ask `found` for a program, and skip with `missing` if it is nowhere.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from platformdirs import user_cache_path


class Program(NamedTuple):
    """A package of a Go module, with the flags that upstream's own build gives the compiler."""

    module: str
    package: str
    flags: tuple[str, ...]


# Helm's Makefile derives these from its client library; without them `helm template` assumes Kubernetes v1.20.
_CAPABILITIES = "-X helm.sh/helm/v3/pkg/{0}.k8sVersionMajor=1 -X helm.sh/helm/v3/pkg/{0}.k8sVersionMinor=37"
_HELM = (f"-ldflags={_CAPABILITIES.format('chartutil')} {_CAPABILITIES.format('lint/rules')}",)
# File and static service discovery alone: the clients of all clouds are most of the build.
_PROMETHEUS = ("-tags=remove_all_sd", "-ldflags=-X github.com/prometheus/common/version.Version=3.13.5")
PROGRAMS = {
    "helm": Program("helm.sh/helm/v3@v3.22.0", "./cmd/helm", _HELM),
    "promtool": Program("github.com/prometheus/prometheus@v0.313.5", "./cmd/promtool", _PROMETHEUS),
    "prometheus": Program("github.com/prometheus/prometheus@v0.313.5", "./cmd/prometheus", _PROMETHEUS),
}


def found(name: str) -> Path | None:
    """The path of a program in the cache, else on PATH; None if it is in neither."""
    cached = _target(name)
    on_path = shutil.which(name)
    return cached if cached.is_file() else Path(on_path) if on_path else None


def missing(name: str) -> str:
    """The reason for skipping a test that needs this program."""
    return f"{name} is neither on PATH nor built: python -m tools.go_programs {name}"


def build(name: str) -> None:
    """Build one program. Raises SystemExit without Go, and CalledProcessError after Go's own message."""
    program, target = PROGRAMS[name], _target(name)
    go = shutil.which("go") or sys.exit("Go is not on PATH: get Go 1.26 or newer from go.dev")
    environment = {**os.environ, "CGO_ENABLED": "0", "GOWORK": "off"}
    download = [go, "mod", "download", "-json", program.module]
    fetched = subprocess.run(download, env=environment, stdout=subprocess.PIPE, check=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    command = [go, "build", "-trimpath", *program.flags, "-o", str(target), program.package]
    subprocess.run(command, env=environment, cwd=json.loads(fetched.stdout)["Dir"], check=True)


def _target(name: str) -> Path:
    return user_cache_path("enricher") / "go" / PROGRAMS[name].module.replace("/", "-") / name


if __name__ == "__main__":
    for each in sys.argv[1:] or PROGRAMS:
        if found(each) is None:
            build(each)
