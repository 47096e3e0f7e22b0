"""The tools that `tools.toml` lists, and where each is kept once it is built. Builds and fetches nothing."""

from __future__ import annotations

import shutil
import tomllib
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from platformdirs import user_cache_path

from tools.cluster.errors import ToolsError
from tools.kafka.jars import Jar

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

TABLE_PATH = Path(__file__).with_name("tools.toml")


@dataclass(frozen=True, slots=True)
class Module:
    """A Go module in one version, and how upstream builds it. `staging`: version of the modules inside it."""

    path: str
    version: str
    staging: str | None = None
    tags: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def source(self) -> str:
        """Path and version in Go's notation."""
        return f"{self.path}@{self.version}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """One row of the table. `cluster`: whether the cluster needs it."""

    name: str
    version: str
    reason: str
    cluster: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Program(Tool):
    """A binary that is built from a package of a Go module."""

    module: Module
    package: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Files(Tool):
    """Files that are copied from a Go module's source; `patterns` as `Path.glob` takes them."""

    module: Module
    patterns: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Generated(Tool):
    """Files that a Java program writes: one YAML file for each of `classes`."""

    main: str
    arguments: tuple[str, ...]
    classes: tuple[str, ...]
    jars: tuple[Jar, ...]


def folder_of(tool: Tool) -> Path:
    """The folder of a tool's version, which exists only if the build is complete."""
    return user_cache_path("enricher") / "cluster" / f"{tool.name}-{tool.version}"


def found(name: str) -> Path | None:
    """The path of a program in the cache, else on PATH; None if it is in neither."""
    tool = table().get(name)
    if tool is not None and (path := folder_of(tool) / name).is_file():
        return path
    on_path = shutil.which(name)
    return None if on_path is None else Path(on_path)


def missing(name: str) -> str:
    """The reason for skipping a test that needs this program."""
    return f"{name} is not here: scripts/cluster build {name}"


def needed(name: str) -> Path:
    """The path of a program; raises `ToolsError` if it is not there."""
    path = found(name)
    if path is None:
        raise ToolsError(missing(name))
    return path


def lacking() -> list[str]:
    """Names of the missing tools that the cluster needs."""
    needed_for_it = [tool for tool in table().values() if tool.cluster]
    return [
        tool.name
        for tool in needed_for_it
        if not (found(tool.name) if isinstance(tool, Program) else folder_of(tool).is_dir())
    ]


def chosen(names: Iterable[str]) -> list[Tool]:
    """Tools by name; raises `ToolsError` for an unknown name."""
    tools = table()
    unknown = [name for name in names if name not in tools]
    if unknown:
        raise ToolsError(f"unknown: {', '.join(unknown)}. There are: {', '.join(tools)}")
    return [tools[name] for name in names]


@cache
def table() -> Mapping[str, Tool]:
    """All tools of `tools.toml` by name, most useful first."""
    document = tomllib.loads(TABLE_PATH.read_text(encoding="utf-8"))
    tools = [tool for entry in document["module"] for tool in _of_module(entry)]
    tools += [_generated_tool(entry) for entry in document["maven"]]
    return {tool.name: tool for tool in tools}


def _of_module(entry: dict[str, Any]) -> Iterator[Tool]:
    programs, files = entry.pop("program", []), entry.pop("files", [])
    filled = {"version": entry["version"], "bare": entry["version"].removeprefix("v")}
    entry["variables"] = {name: value.format(**filled) for name, value in entry.get("variables", {}).items()}
    module = Module(**{**entry, "tags": tuple(entry.get("tags", ()))})
    yield from (Program(version=module.version, module=module, **program) for program in programs)
    for copied in files:
        yield Files(version=module.version, module=module, **{**copied, "patterns": tuple(copied["patterns"])})


def _generated_tool(entry: dict[str, Any]) -> Generated:
    jars = tuple(Jar(**jar) for jar in entry.pop("jar"))
    lists = {name: tuple(entry[name]) for name in ("arguments", "classes")}
    return Generated(**{**entry, **lists}, jars=jars)
