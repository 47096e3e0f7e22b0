"""The table of tools: where tools are found, and what each entry needs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tools.cluster import found, missing, table
from tools.cluster.errors import ToolsError
from tools.cluster.programs import all_commands
from tools.cluster.table import TABLE_PATH, Program, chosen, folder_of


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and an empty PATH."""
    monkeypatch.setattr(table, "user_cache_path", lambda _: tmp_path / "cache")
    monkeypatch.setenv("PATH", "")
    return tmp_path / "cache"


def put(path: Path) -> Path:
    """Create an executable."""
    path.parent.mkdir(parents=True)
    path.touch(mode=0o755)
    return path


def test_a_tool_is_found_in_the_cache_in_the_version_of_the_table(cache: Path) -> None:
    """A tool in another version is not used."""
    (helm,) = chosen(["helm"])
    put(cache / "cluster" / "helm-v3.0.0" / "helm")
    assert found("helm") is None
    assert found("helm") != put(folder_of(helm) / "helm") == found("helm")


def test_a_tool_is_found_on_path_too(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program on PATH, such as a distribution's promtool, is used if the cache has none."""
    assert not cache.exists()
    on_path = put(tmp_path / "bin" / "promtool")
    monkeypatch.setenv("PATH", str(on_path.parent))
    assert on_path == found("promtool")
    (promtool,) = chosen(["promtool"])
    assert put(folder_of(promtool) / "promtool") == found("promtool")


def test_a_missing_tool_is_named_with_the_command_that_makes_it() -> None:
    """The reason for skipping a test names the command."""
    assert "promtool is not here: scripts/cluster build promtool" == missing("promtool")


def test_what_the_cluster_lacks_is_named(cache: Path) -> None:
    """Missing programs and files of the cluster are listed, and nothing else."""
    assert not cache.exists()
    assert {"etcd", "kwok-stages", "strimzi-crds"} <= set(table.lacking())
    assert {"helm", "promtool"}.isdisjoint(table.lacking())
    (etcd,) = chosen(["etcd"])
    put(folder_of(etcd) / "etcd")
    assert "etcd" not in table.lacking()


def test_an_unknown_tool_is_an_error_that_lists_the_known() -> None:
    """`scripts/cluster build` lists the known tools."""
    with pytest.raises(ToolsError, match=r"unknown: helmet\. There are: helm, etcd, "):
        chosen(["helm", "helmet"])


def test_everything_that_the_cluster_runs_is_built_for_it(tmp_path: Path) -> None:
    """The table marks exactly the tools that the cluster runs."""
    built = {tool.name for tool in table.table().values() if isinstance(tool, Program) and tool.cluster}
    assert built == {command.name for command in all_commands(tmp_path)} | {"kubectl"}


def test_every_tool_has_its_reason_and_an_exact_version() -> None:
    """Every entry has a reason and an exact version, and names no package host."""
    for tool in table.table().values():
        assert tool.reason
        assert re.fullmatch(r"v?\d+\.\d+\.\d+", tool.version)
    assert "://" not in TABLE_PATH.read_text("utf-8")
