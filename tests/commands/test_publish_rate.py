"""`publish --rate`: the rate is a maximum, whatever the broker does meanwhile."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from typing import cast

import pytest
from support.clock import Clock

from enricher.operate.publish import command
from enricher.operate.publish.command import _Sending
from enricher.operate.publish.publisher import Publisher
from enricher.operate.publish.token_bucket import TokenBucket
from enricher.worker.commands.console import Ticker


class Client:
    """Queues articles while the broker is away, as the client does, and notes when each arrives."""

    def __init__(self, clock: Clock, outage_s: tuple[float, float]) -> None:
        self._clock, self._outage_s, self._waiting = clock, outage_s, 0
        self.arrived_s: list[float] = []
        self.failures: Counter[str] = Counter()
        self.delivered_bytes = 0

    @property
    def delivered(self) -> int:
        """Number of articles that have arrived."""
        return len(self.arrived_s)

    def send(self, _key: bytes | None, _value: bytes) -> None:
        """Never blocks."""
        self._waiting += 1
        self._deliver()

    def wait(self, seconds: float) -> None:
        """A wait takes a millisecond at least."""
        self._clock.now_s += max(seconds, 0.001)
        self._deliver()

    def _deliver(self) -> None:
        """Queued articles arrive all at once when the broker is back."""
        begin_s, end_s = self._outage_s
        if not begin_s <= self._clock.now_s < end_s:
            self.arrived_s += [self._clock.now_s] * self._waiting
            self._waiting = 0

    def drain(self, timeout_s: float) -> int:
        """Wait for acknowledgements."""
        self.wait(timeout_s)
        return self._waiting


class Still:
    """A ticker that shows nothing."""

    def tick(self, _text: object) -> None:
        """Nothing."""


def most_in(arrived_s: list[float], seconds: float) -> int:
    """The most articles in any interval of this length."""
    at_s = sorted(arrived_s)
    return max(bisect_left(at_s, begin + seconds) - bisect_left(at_s, begin) for begin in set(at_s))


@pytest.mark.parametrize("outage_s", [(0.0, 0.0), (110.0, 155.0)], ids=["none", "45 s"])
def test_an_outage_is_not_caught_up_with(monkeypatch: pytest.MonkeyPatch, outage_s: tuple[float, float]) -> None:
    """A token bucket alone let 45 s of articles arrive at once; only those of one second may be unacknowledged."""
    clock = Clock()
    monkeypatch.setattr(command, "TokenBucket", lambda rate_per_s: TokenBucket(rate_per_s, clock=clock))
    client = Client(clock, outage_s)
    sending = _Sending(cast("Publisher", client), "articles", rate_per_s=60.0, transactional=False)
    sending.send(((None, b"{}") for _ in range(3_000)), cast("Ticker", Still()))
    assert 3_000 == client.delivered
    assert most_in(client.arrived_s, 5.0) <= 5 * 60 + 60 + 6
    undisturbed_s = client.arrived_s[-1] - 100.0 - (outage_s[1] - outage_s[0])
    assert 3_000 / 61 <= undisturbed_s <= 3_000 / 59 + 2


@pytest.mark.parametrize("rate", [0.5, 60.0, 10_000.0])
def test_a_bucket_gives_its_rate_and_one_short_burst(rate: float) -> None:
    """After an hour without articles, at most the articles of a tenth of a second are sent at once."""
    clock = Clock()
    bucket = TokenBucket(rate, clock=clock)
    clock.now_s += 3_600.0
    burst = 0
    while bucket.wait_s() == 0:
        bucket.take()
        burst += 1
    assert burst == max(1, int(rate / 10))
    assert bucket.wait_s() <= 1 / rate
