"""`scripts/kafka`, as a developer uses it."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from support.patience import PATIENCE_S
from support.scripted import Script

from tools.kafka.__main__ import main
from tools.kafka.keeper import end, processes_of
from tools.kafka.versions import DEFAULT, OLDEST
from tools.ports import free_ports
from tools.waiting import suspend

pytestmark = pytest.mark.broker


EXPORT = "export ENRICHER_KAFKA__BOOTSTRAP_SERVERS="


@pytest.fixture
def kafka(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Iterator[Script]:
    """The commands on a temporary folder; stops what a failed test left running."""
    yield Script("tools.kafka", main, tmp_path, monkeypatch, capfd)
    end(tmp_path.resolve())


@pytest.mark.parametrize("version", [DEFAULT, pytest.param(OLDEST, marks=pytest.mark.long)])
def test_a_day_with_kafka(kafka: Script, tmp_path: Path, version: str) -> None:
    """Start, start again, status, stop, stop again, status: each works, topics survive, and versions are not mixed."""
    port = str(free_ports(1)[0])
    address = f"127.0.0.1:{port}"
    start = ("start", "--version", version, "--port", port)
    first = kafka.process(*start)
    assert (0, f"{EXPORT}{address}\n") == (first.code, first.out)
    client = AdminClient({"bootstrap.servers": address})
    client.create_topics([NewTopic("kept", 1)])["kept"].result(PATIENCE_S)

    again = kafka(*start)
    assert (0, first.out) == (again.code, again.out)
    assert "is already running" in again.err
    assert len(list(processes_of(tmp_path.resolve()))) == 1
    status = kafka("status")
    assert status.code == 0
    assert f"Kafka {version}" in status.out
    other = kafka("start", "--version", "3.9", "--port", port)
    assert other.code == 1
    assert f"it is {version}, not 3.9." in other.err

    assert kafka.process("stop").code == 0
    assert list(processes_of(tmp_path.resolve())) == []
    nothing = kafka("stop")
    assert nothing.code == 0
    assert "nothing to do" in nothing.err
    assert kafka("status").code == 3

    assert kafka.process(*start).code == 0
    client = AdminClient({"bootstrap.servers": address})
    assert "kept" in client.list_topics(timeout=PATIENCE_S).topics

    (process,) = processes_of(tmp_path.resolve())
    suspend(process)
    frozen = kafka("status")
    assert (frozen.code, frozen.out[:15]) == (3, "does not answer")
    assert kafka("stop", "--erase").code == 0
    assert list(tmp_path.iterdir()) == []


def test_unknown_version_is_refused_with_those_that_there_are(kafka: Script) -> None:
    """A version without a lock is never started, wherever it is named."""
    for arguments in (("start", "--version", "9.9.9"), ("fetch", "--version", "9.9.9")):
        refused = kafka(*arguments)
        assert refused.code == 1
        assert f"there is no lock for Kafka 9.9.9; choose one of {OLDEST}" in refused.err


def test_taken_port_is_refused_before_anything_starts(kafka: Script, tmp_path: Path) -> None:
    """The message names a port that another program uses, and no process is left."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        refused = kafka("start", "--port", port)
    assert refused.code == 1
    assert f"port {port} is taken" in refused.err
    assert list(processes_of(tmp_path.resolve())) == []
