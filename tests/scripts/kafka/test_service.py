"""`scripts/kafka`, as a developer uses it: each command from its own process."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from support.patience import PATIENCE_S

from tools.kafka.keeper import end, processes_of
from tools.kafka.versions import DEFAULT, OLDEST
from tools.ports import free_ports

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Kafka = Callable[..., subprocess.CompletedProcess[str]]

pytestmark = pytest.mark.broker


SCRIPTS = Path(__file__).parents[3] / "scripts"
EXPORT = "export ENRICHER_KAFKA__BOOTSTRAP_SERVERS="


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[Kafka]:
    """Run a command of `scripts/kafka` on a temporary folder; stops what a failed test left running."""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        data = () if arguments[0] in {"fetch", "--version"} else ("--data", str(tmp_path))
        command = [sys.executable, "-m", "tools.kafka", *arguments, *data]
        environment = {**os.environ, "PYTHONPATH": str(SCRIPTS)}
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=PATIENCE_S)

    yield run
    end(tmp_path.resolve())


def test_a_day_with_kafka(kafka: Kafka, tmp_path: Path) -> None:
    """Start, start again, status, stop, stop again, status: each works, and topics survive."""
    port = str(free_ports(1)[0])
    address = f"127.0.0.1:{port}"
    first = kafka("start", "--port", port)
    assert (0, f"{EXPORT}{address}\n") == (first.returncode, first.stdout)
    client = AdminClient({"bootstrap.servers": address})
    client.create_topics([NewTopic("kept", 1)])["kept"].result(PATIENCE_S)

    again = kafka("start", "--port", port)
    assert (0, first.stdout) == (again.returncode, again.stdout)
    assert "is already running" in again.stderr
    assert len(list(processes_of(tmp_path.resolve()))) == 1
    assert kafka("status").returncode == 0

    assert kafka("stop").returncode == 0
    assert list(processes_of(tmp_path.resolve())) == []
    nothing = kafka("stop")
    assert nothing.returncode == 0
    assert "nothing to do" in nothing.stderr
    assert kafka("status").returncode == 3

    assert kafka("start", "--port", port).returncode == 0
    client = AdminClient({"bootstrap.servers": address})
    assert "kept" in client.list_topics(timeout=PATIENCE_S).topics

    (process,) = processes_of(tmp_path.resolve())
    process.suspend()
    frozen = kafka("status")
    assert (frozen.returncode, frozen.stdout[:15]) == (3, "does not answer")
    assert kafka("stop", "--erase").returncode == 0
    assert list(tmp_path.iterdir()) == []


def test_a_day_with_the_oldest_kafka(kafka: Kafka, tmp_path: Path) -> None:
    """A chosen version is not mixed with another, and its ZooKeeper ends with its broker."""
    port = str(free_ports(1)[0])
    assert kafka("start", "--version", OLDEST, "--port", port).returncode == 0
    client = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}"})
    client.create_topics([NewTopic("kept", 1)])["kept"].result(PATIENCE_S)
    other = kafka("start", "--port", port)
    assert other.returncode == 1
    assert f"it is {OLDEST}, not {DEFAULT}" in other.stderr
    assert f"Kafka {OLDEST}" in kafka("status").stdout
    assert kafka("stop").returncode == 0
    assert list(processes_of(tmp_path.resolve())) == []

    assert kafka("start", "--version", "oldest", "--port", port).returncode == 0
    client = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}"})
    assert "kept" in client.list_topics(timeout=PATIENCE_S).topics
    assert kafka("stop", "--erase").returncode == 0
    assert list(tmp_path.iterdir()) == []


def test_unknown_version_is_refused_with_those_that_there_are(kafka: Kafka) -> None:
    """A version without a lock is never started, wherever it is named."""
    for arguments in (("start", "--version", "9.9.9"), ("fetch", "--version", "9.9.9"), ("--version", "9.9.9")):
        refused = kafka(*arguments)
        assert refused.returncode == 1
        assert f"there is no lock for Kafka 9.9.9; choose one of {OLDEST}" in refused.stderr


def test_taken_port_is_refused_before_anything_starts(kafka: Kafka, tmp_path: Path) -> None:
    """The message names a port that another program uses, and no process is left."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        refused = kafka("start", "--port", port)
    assert refused.returncode == 1
    assert f"port {port} is taken" in refused.stderr
    assert list(processes_of(tmp_path.resolve())) == []
