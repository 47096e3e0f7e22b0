"""Ports for servers: each is chosen by one process."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest

from tools import SCRIPTS, ports

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


def test_a_port_on_which_somebody_listens_is_not_free() -> None:
    """Ports that were claimed by nobody may be taken all the same."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert not ports.is_free(server.getsockname()[1])
