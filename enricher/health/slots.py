"""Limits on the requests that are answered at once: in all, per peer, and separately for probes."""

from __future__ import annotations

import threading
from collections import Counter

MAX_REQUESTS = 32
"""In all: a scraper and some people. Prometheus sends one request at a time."""
MAX_REQUESTS_OF_PEER = 16
"""Per peer, so that a client that does not read its answers cannot use all slots."""
MAX_PROBES = 8
"""For probes only. Their answers fit into a socket's buffer, so no client can hold a slot for long."""


class Slots:
    """Counts the requests that are being answered. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._probes = 0
        self._of_peer: Counter[str] = Counter()

    def take(self, peer: str, *, probe: bool) -> bool:
        """Take a slot; False if none is left."""
        with self._lock:
            if probe:
                free = self._probes < MAX_PROBES
                self._probes += free
                return free
            if self._of_peer.total() >= MAX_REQUESTS or self._of_peer[peer] >= MAX_REQUESTS_OF_PEER:
                return False
            self._of_peer[peer] += 1
            return True

    def give_back(self, peer: str, *, probe: bool) -> None:
        """Return a slot that was taken."""
        with self._lock:
            if probe:
                self._probes -= 1
                return
            self._of_peer[peer] -= 1
            self._of_peer += Counter()  # drops peers with a count of 0
