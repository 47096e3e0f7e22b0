"""How many connections may wait for their request, and how many requests may be answered at once. Not thread-safe."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

MAX_WAITING = 256
"""All waiting connections. Each takes a file descriptor and at most `MAX_HEAD_BYTES`; `select` on Windows handles 512."""
MAX_WAITING_OF_PEER = 128
MAX_REQUESTS = 32
"""All requests: those of a scraper and some people. Prometheus sends one request at a time."""
MAX_REQUESTS_OF_PEER = 16
"""Per peer, so that a client that does not read its answers cannot use all slots."""
MAX_PROBES = 8
"""Further requests, for probes alone. Their answers fit into a socket's buffer, so no client can hold a slot for long."""


class Waiting:
    """The tasks that wait for a request on their connection. A peer is an address without a port."""

    def __init__(self) -> None:
        self._peers: dict[asyncio.Task[object], str] = {}  # the oldest first

    @contextmanager
    def admit(self, peer: str) -> Iterator[None]:
        """Count this task while the body waits. If there are too many, cancel the oldest of the peer that has most."""
        task, peers = asyncio.current_task(), Counter(self._peers.values())
        assert task is not None, "each connection has its own task"
        if peers[peer] >= MAX_WAITING_OF_PEER:
            self._cancel_oldest(peer)
        elif len(self._peers) >= MAX_WAITING:
            self._cancel_oldest(peers.most_common(1)[0][0])
        self._peers[task] = peer
        try:
            yield
        finally:
            self._peers.pop(task, None)

    def _cancel_oldest(self, peer: str) -> None:
        oldest = next(task for task, each in self._peers.items() if each == peer)
        del self._peers[oldest]
        oldest.cancel()


class Slots:
    """The requests that are being answered, by peer; probes have slots that nobody else can take."""

    def __init__(self) -> None:
        self._probes = 0
        self._of_peer: Counter[str] = Counter()

    @contextmanager
    def take(self, peer: str, *, probe: bool) -> Iterator[bool]:
        """Take a slot for the body; False if none is left."""
        if probe:
            free = self._probes < MAX_PROBES
        else:
            free = self._of_peer.total() < MAX_REQUESTS and self._of_peer[peer] < MAX_REQUESTS_OF_PEER
        if not free:
            yield False
            return
        self._count(peer, 1, probe=probe)
        try:
            yield True
        finally:
            self._count(peer, -1, probe=probe)

    def _count(self, peer: str, more: int, *, probe: bool) -> None:
        if probe:
            self._probes += more
        else:
            self._of_peer[peer] += more
            self._of_peer += Counter()  # drops peers with a count of 0
