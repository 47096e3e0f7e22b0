"""`scripts/kafka`, as a developer uses it; its nodes serve, survive faults, and leave nothing behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from support.patience import PATIENCE_S
from typer.testing import CliRunner, Result

from tools import SCRIPTS, ports
from tools.kafka import Cluster, ClusterError
from tools.kafka import __main__ as commands
from tools.kafka.keeper import end, processes_of
from tools.kafka.versions import DEFAULT, OLDEST
from tools.ports import free_ports
from tools.waiting import suspend, wait_until

pytestmark = pytest.mark.broker

EXPORT = "export ENRICHER_KAFKA__BOOTSTRAP_SERVERS="


@dataclass(frozen=True, slots=True)
class Script:
    """The commands, with their data in a folder."""

    folder: Path

    def start(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run that command in a process, which its nodes outlive."""
        command = [sys.executable, "-m", "tools.kafka", "start", *arguments, "--data", str(self.folder)]
        environment = {**os.environ, "PYTHONPATH": str(SCRIPTS)}
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=PATIENCE_S)

    def __call__(self, *arguments: str) -> Result:
        """Run a command in this process."""
        return CliRunner().invoke(commands.app, [*arguments, "--data", str(self.folder)])


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[Script]:
    """The commands on a temporary folder; stops what a failed test left running."""
    yield Script(tmp_path)
    end(tmp_path.resolve())


@pytest.mark.parametrize("version", [DEFAULT, pytest.param(OLDEST, marks=pytest.mark.long)])
def test_a_day_with_kafka(kafka: Script, tmp_path: Path, version: str) -> None:
    """Start, start again, status, stop, stop again, status: each works, topics survive, and versions are not mixed."""
    port = str(free_ports(1)[0])
    address = f"127.0.0.1:{port}"
    start = ("--version", version, "--port", port)
    first = kafka.start(*start)
    assert (0, f"{EXPORT}{address}\n") == (first.returncode, first.stdout)
    client = AdminClient({"bootstrap.servers": address})
    client.create_topics([NewTopic("kept", 1)])["kept"].result(PATIENCE_S)

    again = kafka("start", *start)
    assert (0, first.stdout) == (again.exit_code, again.stdout)
    assert "is already running" in again.stderr
    assert len(list(processes_of(tmp_path.resolve()))) == 1
    status = kafka("status")
    assert status.exit_code == 0
    assert f"Kafka {version}" in status.stdout
    other = kafka("start", "--version", "3.9", "--port", port)
    assert f"it is {version}, not 3.9." in str(other.exception)

    assert kafka("stop").exit_code == 0
    assert list(processes_of(tmp_path.resolve())) == []
    assert "nothing to do" in kafka("stop").stderr
    assert kafka("status").exit_code == 3

    assert kafka.start(*start).returncode == 0
    client = AdminClient({"bootstrap.servers": address})
    assert "kept" in client.list_topics(timeout=PATIENCE_S).topics

    (process,) = processes_of(tmp_path.resolve())
    suspend(process)
    frozen = kafka("status")
    assert (frozen.exit_code, frozen.stdout[:15]) == (3, "does not answer")
    assert kafka("stop", "--erase").exit_code == 0
    assert list(tmp_path.iterdir()) == []


def test_unknown_version_is_refused_with_those_that_there_are(kafka: Script) -> None:
    """A version without a lock is never started; the refusal is one sentence."""
    refused = kafka.start("--version", "9.9.9")
    assert refused.returncode == 1
    assert refused.stderr.startswith(f"scripts/kafka: there is no lock for Kafka 9.9.9; choose one of {OLDEST}")


def test_taken_port_is_refused_before_anything_starts(
    kafka: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message names a port that another program uses, and no process is left."""
    monkeypatch.setattr(commands, "_CLOSES_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        refused = kafka("start", "--port", port)
    assert f"port {port} is taken" in str(refused.exception)
    assert list(processes_of(tmp_path.resolve())) == []


PARENT = "from tools.kafka import Cluster; Cluster().start(); input()"


@pytest.mark.parametrize("name", ["SIGKILL", pytest.param("SIGTERM", marks=pytest.mark.long)])
def test_cluster_dies_with_a_killed_parent(name: str, tmp_path: Path) -> None:
    """However the parent ends, and be it while they start, its nodes and their folder are gone soon afterwards."""
    environment = {**os.environ, "PYTHONPATH": str(SCRIPTS), "TMPDIR": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", PARENT], env=environment) as parent:
        assert wait_until(lambda: any(processes_of(tmp_path)), PATIENCE_S)
        parent.send_signal(getattr(signal, name))
    assert wait_until(lambda: not any(tmp_path.iterdir()), PATIENCE_S)
    assert list(processes_of(tmp_path)) == []


def test_node_that_cannot_start_says_why_and_leaves_nothing() -> None:
    """A rejected setting raises an error with the end of Kafka's log."""
    cluster = Cluster(properties={"num.network.threads": "none"})
    with pytest.raises(ClusterError, match=r"num\.network\.threads"):
        cluster.start()
    assert not cluster.nodes[0].folder.exists()


ASKS = "from tools import ports; ports._PORTS = range({first}, {first} + 40); print(*ports.free_ports(40))"


def test_no_two_processes_are_given_the_same_port(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the choice and the start of a server, nobody listens yet, and another test process may look for ports."""
    [first] = ports.free_ports(1)
    monkeypatch.setattr(ports, "_PORTS", range(first, first + 40))
    mine = ports.free_ports(20)
    code = ASKS.format(first=first)
    asked = subprocess.run([sys.executable, "-c", code], cwd=SCRIPTS, capture_output=True, text=True, check=True)
    theirs = [int(port) for port in asked.stdout.split()]
    assert theirs
    assert set() == {first, *mine} & set(theirs)
