"""How an upstream module is built outside upstream's repository."""

from __future__ import annotations

import pytest

from tools.cluster.errors import ToolsError
from tools.cluster.golang import find_go, replacements


def replaced(old: str, new: str, version: str = "") -> dict[str, object]:
    """One replacement as `go mod edit -json` prints it."""
    return {"Old": {"Path": old}, "New": {"Path": new, "Version": version}}


def test_a_folder_that_stands_for_no_version_becomes_the_staging_version() -> None:
    """Kubernetes requires its own parts as v0.0.0 and finds them in folders that its module lacks."""
    mod = {
        "Require": [{"Path": "k8s.io/api", "Version": "v0.0.0"}],
        "Replace": [replaced("k8s.io/api", "./staging/src/k8s.io/api")],
    }
    assert ["-replace=k8s.io/api=k8s.io/api@v0.36.3"] == replacements(mod, "v0.36.3")


def test_a_folder_that_stands_for_a_version_gives_way_to_it() -> None:
    """Etcd requires its neighbours by version, and forbids others by a folder that does not exist."""
    mod = {
        "Require": [{"Path": "go.etcd.io/etcd/api/v3", "Version": "v3.6.8"}],
        "Replace": [
            replaced("go.etcd.io/etcd/api/v3", "../api"),
            replaced("go.etcd.io/etcd", "./FORBIDDEN_DEPENDENCY"),
        ],
    }
    assert ["-dropreplace=go.etcd.io/etcd/api/v3", "-dropreplace=go.etcd.io/etcd"] == replacements(mod, None)


def test_a_replacement_by_another_module_stays() -> None:
    """A replacement by another module works anywhere and is kept."""
    mod = {"Require": None, "Replace": [replaced("example.org/a", "example.org/fork", "v1.0.0")]}
    assert [] == replacements(mod, None)


def test_a_module_without_replacements_is_built_as_it_is() -> None:
    """Go writes null for an empty list, which needs no edits."""
    assert [] == replacements({"Require": None, "Replace": None}, None)


def test_without_go_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says what to install, and from where."""
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ToolsError, match=r"Go is not on PATH\. Get Go 1\.26 or newer from go\.dev"):
        find_go()
