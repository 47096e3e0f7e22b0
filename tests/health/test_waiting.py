"""Connections without a complete request: which are closed in favour of which."""

from __future__ import annotations

import selectors
import socket
from collections.abc import Iterator

import pytest

from enricher.health import waiting
from enricher.health.waiting import Connection, Waiting


class Pairs:
    """Connections of invented peers, with the clients' ends."""

    def __init__(self) -> None:
        self.others: list[socket.socket] = []
        self.selector = selectors.DefaultSelector()
        self.waiting = Waiting(self.selector)

    def add(self, peer: str, since_s: float = 0.0) -> tuple[Connection, socket.socket]:
        """Add a waiting connection; return it and the client's end."""
        ours, other = socket.socketpair()
        ours.settimeout(0)
        self.others.append(other)
        connection = Connection(ours, peer, since_s)
        self.waiting.add(connection)
        return connection, other


@pytest.fixture
def pairs() -> Iterator[Pairs]:
    """No connections yet; all are closed at the end."""
    made = Pairs()
    yield made
    made.waiting.close()
    made.selector.close()
    for other in made.others:
        other.close()


def test_a_crowd_makes_room_by_its_own(monkeypatch: pytest.MonkeyPatch, pairs: Pairs) -> None:
    """The oldest connection of the peer that has most is closed, not the kubelet's, which is older."""
    monkeypatch.setattr(waiting, "MAX_WAITING", 4)
    _, probe = pairs.add("kubelet")
    crowd = [pairs.add("crowd")[1] for _ in range(4)]
    assert b"" == crowd[0].recv(1)
    assert len(pairs.waiting) == 4
    for open_one in (probe, *crowd[1:]):
        open_one.settimeout(0)
        with pytest.raises(BlockingIOError):
            open_one.recv(1)


def test_one_peer_has_few(monkeypatch: pytest.MonkeyPatch, pairs: Pairs) -> None:
    """Its next connection closes its oldest, although others would fit."""
    monkeypatch.setattr(waiting, "MAX_WAITING_OF_PEER", 2)
    first, *_ = [pairs.add("one")[1] for _ in range(3)]
    assert b"" == first.recv(1)
    pairs.add("another")
    assert len(pairs.waiting) == 3


def test_a_head_may_come_in_parts(pairs: Pairs) -> None:
    """The request is complete at the first empty line; then the connection is not waiting any more."""
    connection, other = pairs.add("one")
    for part in (b"GET / HTTP/1.1\r\n", b"A: b\r\n"):
        other.sendall(part)
        assert not pairs.waiting.read(connection)
    other.sendall(b"\r\n")
    assert pairs.waiting.read(connection)
    assert b"GET / HTTP/1.1\r\nA: b\r\n\r\n" == bytes(connection.head)
    assert len(pairs.waiting) == 0
    connection.socket.close()


def test_those_who_take_too_long_are_closed(pairs: Pairs) -> None:
    """This does not depend on what they have sent; younger ones keep waiting."""
    _, old = pairs.add("one", since_s=0.0)
    pairs.add("one", since_s=3.0)
    pairs.waiting.close_late(now_s=waiting.HEAD_S)
    assert b"" == old.recv(1)
    assert len(pairs.waiting) == 1
