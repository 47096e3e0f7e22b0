"""A tool appears in the cache when it is complete, and not before."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from tools.cluster import making, table
from tools.cluster.errors import ToolsError
from tools.cluster.table import Files, Module, Program, chosen, folder_of


class FakeWorkshop:
    """A fake Go that writes what it is asked for, or fails."""

    fails = False

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def source(self, module: Module) -> Path:
        """A module that contains two files."""
        source = self.folder / "mod" / module.source
        source.mkdir(parents=True, exist_ok=True)
        for name in ("pod-ready.yaml", "other.txt"):
            (source / name).write_text(name)
        return source

    def build(self, program: Program, target: Path, on_line: Callable[[str], None]) -> None:
        """Write a fake binary."""
        on_line("some/package")
        target.write_text(program.name)
        if self.fails:
            raise ToolsError("go build failed")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and a Go that needs no network."""
    for module in (making, table):
        monkeypatch.setattr(module, "user_cache_path", lambda _: tmp_path)
    monkeypatch.setattr(making, "Workshop", FakeWorkshop)
    return tmp_path / "cluster"


def test_a_program_is_built_once_and_go_leaves_nothing(cache: Path) -> None:
    """Go's caches are removed when all is built; a second call does nothing."""
    tools = chosen(["helm", "etcd"])
    assert tools == making.make(tools)
    assert "helm" == (folder_of(tools[0]) / "helm").read_text()
    assert {"helm-v3.22.0", "etcd-v3.6.8", "lock"} == {path.name for path in cache.iterdir()}
    assert [] == making.make(tools)


def test_gos_caches_are_kept_if_so_asked(cache: Path) -> None:
    """With `keep` the caches stay for the next build."""
    making.make(chosen(["helm"]), keep=True)
    assert (cache / "build").is_dir()


def test_what_failed_is_not_in_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """A failed build leaves no tool, and keeps Go's caches for the next attempt."""
    monkeypatch.setattr(FakeWorkshop, "fails", True)
    (helm,) = chosen(["helm"])
    with pytest.raises(ToolsError, match="go build failed"):
        making.make([helm])
    assert not folder_of(helm).exists()
    monkeypatch.setattr(FakeWorkshop, "fails", False)
    assert [helm] == making.make([helm])


def test_a_full_disk_is_told_before_anything_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says how much space is needed; files alone need almost none."""
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1e9))
    with pytest.raises(ToolsError, match=r"need 3 GB of free disk space, and only 1\.0 GB are free"):
        making.make(chosen(["helm", "etcd"]))
    making.make([an_entry("pod-*.yaml")])


def test_files_are_copied_by_their_patterns() -> None:
    """Only the files that match are copied."""
    files = an_entry("pod-*.yaml")
    making.make([files])
    assert ["pod-ready.yaml"] == [path.name for path in folder_of(files).iterdir()]


def test_a_pattern_that_matches_nothing_is_an_error() -> None:
    """A pattern without matches means that upstream moved its files, and is an error."""
    with pytest.raises(ToolsError, match=r"sigs\.k8s\.io/kwok@v0\.8\.0 has no stage/\*\.yaml"):
        making.make([an_entry("stage/*.yaml")])


def an_entry(pattern: str) -> Files:
    """An entry that copies these files."""
    (stages,) = chosen(["kwok-stages"])
    assert isinstance(stages, Files)
    return replace(stages, patterns=(pattern,))
