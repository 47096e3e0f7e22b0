"""How many requests may be answered at once: of all peers, of one of them, and apart from those the probes."""

from __future__ import annotations

import threading
from collections import Counter

MAX_REQUESTS = 32
"""Answered at the same time: a scraper and some people. Prometheus asks one at a time."""
MAX_REQUESTS_OF_PEER = 16
"""So that one who does not take its answers leaves the others theirs."""
MAX_PROBES = 8
"""Of these besides: an answer to a probe is short, and nobody can hold it up."""


class Slots:
    """A slot for each request that is answered now. Any thread may take one or give one back."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._probes = 0
        self._of_peer: Counter[str] = Counter()

    def take(self, peer: str, *, probe: bool) -> bool:
        """Whether there is one left, which is taken then."""
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
        """One that was taken."""
        with self._lock:
            if probe:
                self._probes -= 1
                return
            self._of_peer[peer] -= 1
            self._of_peer += Counter()  # drops those that have none
