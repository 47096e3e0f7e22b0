"""Connections without a complete request: which are closed in favour of which."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Awaitable, Callable
from http import HTTPStatus

import pytest
from health.looking import LOCALHOST, serving
from support.patience import PATIENCE_S

from enricher.worker.health import connection_limits as limits
from enricher.worker.health.connection_limits import Waiting
from enricher.worker.health.routes import Reply, Request, line

Arrive = Callable[[str], Awaitable[asyncio.Task[None]]]


def waits(play: Callable[[Arrive], Awaitable[None]]) -> None:
    """Play a scene, which gets a function that lets a connection of a peer wait and returns its task."""
    waiting = Waiting()

    async def wait(peer: str) -> None:
        with waiting.admit(peer):
            await asyncio.Event().wait()

    async def arrive(peer: str) -> asyncio.Task[None]:
        task = asyncio.create_task(wait(peer))
        await asyncio.sleep(0)  # it begins to wait
        await asyncio.sleep(0)  # the one it has cancelled ends
        return task

    async def scene() -> None:
        await play(arrive)

    asyncio.run(scene())


def test_a_crowd_makes_room_by_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest connection of the peer that has most is closed, not the kubelet's, which is older."""
    monkeypatch.setattr(limits, "MAX_WAITING", 4)

    async def play(arrive: Arrive) -> None:
        tasks = [await arrive(peer) for peer in ("kubelet", "crowd", "crowd", "crowd", "crowd")]
        assert [False, True, False, False, False] == [task.cancelled() for task in tasks]

    waits(play)


def test_one_peer_has_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its next connection closes its oldest, although others would fit."""
    monkeypatch.setattr(limits, "MAX_WAITING_OF_PEER", 2)

    async def play(arrive: Arrive) -> None:
        tasks = [await arrive(peer) for peer in ("one", "one", "one", "another")]
        assert [True, False, False, False] == [task.cancelled() for task in tasks]

    waits(play)


def test_a_head_may_come_in_parts() -> None:
    """The request is complete at the first empty line, and all of its parts count."""
    with (
        serving({"/": lambda request: line(HTTPStatus.OK, request.accept)}) as port,
        socket.create_connection((LOCALHOST, port), timeout=PATIENCE_S) as connection,
    ):
        for part in (b"GET / HTTP/1.1\r\n", b"Acc", b"ept: b\r\n", b"\r\n"):
            connection.sendall(part)
        answer = b"".join(iter(lambda: connection.recv(65_536), b""))
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert answer.endswith(b"\r\n\r\nb\n")


def test_the_end_does_not_wait_for_an_answer_that_hangs() -> None:
    """The server closes while the thread of a request is held, and its client gets no answer."""
    asked, hold = threading.Event(), threading.Event()

    def held(_request: Request) -> Reply:
        asked.set()
        assert hold.wait(PATIENCE_S)
        return line(HTTPStatus.OK, "too late")

    with socket.socket() as client:
        with serving({"/": held}) as port:
            client.settimeout(30)
            client.connect((LOCALHOST, port))
            client.sendall(b"GET / HTTP/1.1\r\n\r\n")
            assert asked.wait(PATIENCE_S)
        assert not hold.is_set()
        assert b"" == client.recv(1)
    hold.set()
