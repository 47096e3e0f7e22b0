"""Builds programs and fetches files from Go modules, through the proxies that Go's environment names.

A program is built inside upstream's own module, so its go.mod and go.sum choose and verify all dependencies. `go install`
refuses modules that replace others, so a copy of go.mod without replacements by folders of upstream's repository is used
instead (`-modfile`).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tools.cluster.errors import ToolsError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tools.cluster.table import Module, Program

_TOLD_LINES = 20  # of Go's output in an error: the cause is at the end, and a linker's complaint is long


class Workshop:
    """Go, with module and build caches in our own folder, so that all of it can be removed afterwards."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._go = find_go()
        self._environment = {
            **os.environ,
            "CGO_ENABLED": "0",  # no C compiler needed, and the binaries stand alone
            "GOCACHE": str(folder / "cache"),
            "GOFLAGS": f"{os.environ.get('GOFLAGS', '')} -modcacherw".strip(),  # removable like any other folder
            "GOMODCACHE": str(folder / "mod"),
            "GOWORK": "off",  # Kubernetes has a workspace, of folders that are not in its module
        }

    def source(self, module: Module) -> Path:
        """Fetch a module's source, verified against Go's checksum database; returns its folder."""
        self._folder.mkdir(parents=True, exist_ok=True)
        return Path(json.loads(self._ask("mod", "download", "-json", module.source))["Dir"])

    def build(self, program: Program, target: Path, on_line: Callable[[str], None]) -> None:
        """Build one program; `on_line` gets each line of Go's output (a package that it compiles or downloads)."""
        source = self.source(program.module)
        mod_file = self._mod_file(program, source)
        variables = [f"-X {name}={value}" for name, value in program.module.variables.items()]
        command = ["build", "-v", "-trimpath", "-mod=mod", f"-modfile={mod_file}", "-o", str(target)]
        command += ["-tags", ",".join(program.module.tags), "-ldflags", " ".join(["-s -w", *variables])]
        self._run([*command, program.package], source, on_line)

    def _mod_file(self, program: Program, source: Path) -> Path:
        """Copy upstream's go.mod and go.sum, with modules of its repository referenced by version instead of by folder."""
        folder = self._folder / "modules" / program.name
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("go.mod", "go.sum"):
            shutil.copyfile(source / name, folder / name)
        path = folder / "go.mod"
        edits = replacements(json.loads(self._ask("mod", "edit", "-json", str(path))), program.module.staging)
        if edits:
            self._ask("mod", "edit", *edits, str(path))
        return path

    def _ask(self, *arguments: str) -> str:
        """Run a short command; returns its output, raises `ToolsError` with Go's message."""
        done = subprocess.run(
            [self._go, *arguments], env=self._environment, cwd=self._folder, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise ToolsError(f"go {' '.join(arguments)}: {(done.stderr or done.stdout).strip()}")
        return done.stdout

    def _run(self, arguments: Sequence[str], cwd: Path, on_line: Callable[[str], None]) -> None:
        """Run a long command at low priority."""
        command = [*_gently(), self._go, *arguments]
        last: deque[str] = deque(maxlen=_TOLD_LINES)
        with subprocess.Popen(
            command, env=self._environment, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                last.append(line)
                on_line(line.rstrip())
        if process.returncode:
            raise ToolsError(f"go {' '.join(arguments)} failed:\n{''.join(last)}")


def replacements(mod: dict[str, Any], staging: str | None) -> list[str]:
    """The flags of `go mod edit` for a go.mod (as JSON) that is built outside upstream's repository.

    A neighbour module required by its real version needs no replacement; one required as v0.0.0 gets version `staging`.
    """
    required = {entry["Path"]: entry["Version"] for entry in mod.get("Require") or ()}
    edits = []
    for replace in mod.get("Replace") or ():
        old, new = replace["Old"]["Path"], replace["New"]["Path"]
        if not new.startswith("."):
            continue
        if staging and required.get(old) == "v0.0.0":
            edits.append(f"-replace={old}={old}@{staging}")
        else:
            edits.append(f"-dropreplace={old}")
    return edits


def find_go() -> str:
    """The path of Go; raises `ToolsError` that says where to get it."""
    go = shutil.which("go")
    if go is None:
        raise ToolsError(
            "the tools are built from source, and Go is not on PATH. Get Go 1.26 or newer from go.dev, "
            "or with: brew install go, sudo dnf install golang, sudo apt install golang-go (where it is new enough)"
        )
    return go


def _gently() -> list[str]:
    """Run at low priority: a build takes every core for minutes."""
    return ["nice", "-n", "15"] if shutil.which("nice") else []
