"""A cluster's processes are found by the folder that they were started for, and by nothing else."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tools.cluster import service
from tools.cluster.service import Service


@contextmanager
def process(name: str, argument: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process with this command line, until its input ends."""
    command = [name, "-c", "import sys; print(flush=True); sys.stdin.read()", argument]
    with subprocess.Popen(command, executable=sys.executable, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as started:
        assert started.stdout is not None
        started.stdout.readline()  # its command line changes only once it runs
        yield started


def test_a_program_of_the_cluster_is_found_by_its_folder(tmp_path: Path) -> None:
    """Processes of other clusters, and others that only mention the folder, are not found."""
    own = Service(tmp_path / "own")
    with (
        process("etcd", f"--data-dir={own.folder}/etcd") as store,
        process("etcd", f"--data-dir={tmp_path}/own-of-another/etcd"),
        process("editor", f"--open={own.folder}/kubeconfig"),
    ):
        assert {"etcd": store.pid} == {name: found.pid for name, found in own.processes().items()}


def test_stop_ends_what_runs_and_removes_the_keys(tmp_path: Path) -> None:
    """`stop` also cleans up after half a start."""
    own = Service(tmp_path / "own")
    (own.folder / "certificates").mkdir(parents=True)
    with process("kube-apiserver", f"--tls-cert-file={own.folder}/tls.crt"):
        assert 1 == own.stop()
        assert {} == own.processes()
    assert not own.folder.exists()
    assert 0 == own.stop()


def test_a_cluster_of_which_a_part_has_died_does_not_run(tmp_path: Path) -> None:
    """A partly dead cluster counts as stopped, so that `up` restarts it."""
    own = Service(tmp_path / "own")
    own.folder.mkdir()
    (own.folder / "running.json").write_text('{"kubeconfig": "k", "api_server": "a"}')
    with process("etcd", f"--data-dir={own.folder}/etcd"):
        assert own.running() is None


def test_a_folder_that_no_cluster_was_in_is_not_removed(tmp_path: Path) -> None:
    """A folder without a cluster is left alone."""
    (tmp_path / "precious").touch()
    Service(tmp_path).stop()
    assert (tmp_path / "precious").exists()


def test_down_all_finds_what_killed_test_runs_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`down --all` finds the separate folders of test runs."""
    monkeypatch.setattr(service, "user_state_path", lambda _: tmp_path)
    left = service.clusters_folder() / "tests-1"
    left.mkdir(parents=True)
    with process("kwok", f"--kubeconfig={left}/kubeconfig"):
        assert 1 == service.stop_all()
