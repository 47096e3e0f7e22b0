"""How busy the worker is, and what that allows: small batches and small transactions cost more, and idle time pays for them.

At low load, work that is done at once makes results fresh, and its extra cost would have been idle time. Near capacity the
same cost would reduce the throughput. So both rules allow fixed costs a share of the time that falls smoothly with the load,
which they themselves raise: there is no threshold around which they could swing.

Nothing here reads a clock.
"""

from __future__ import annotations

import math
from collections import deque
from statistics import median

AVERAGED_S = 1.0
"""Time constant of the averages: longer than any batch, and short enough to follow a burst."""
_MARKERS_S = 0.005
"""The pause after a transaction. Brokers need so long to end it and refuse the next one until then; librdkafka would ask
again only 20 ms later."""
_NO_LOAD = 1e-6
_COSTS = 9
"""Transaction cost is the median of the last nine, so that one slow commit does not count."""


def share_at_load(share: float, load: float, power: int = 2) -> float:
    """The share of the time that fixed costs may take at this load; `share` is what they may take at half load.

    Falls from infinity at load 0 to 0 at load 1, with this power of the odds that the worker is idle.
    """
    # After minutes without work the load is so small that the power would overflow.
    return share * ((1 - load) / load) ** power if load > _NO_LOAD else math.inf


class Load:
    """Moving averages of how busy the device's threads, the tokenizer's threads and the loop are.

    The busiest of them counts: on a fast device the loop or the tokenizer can be the bottleneck, and then it pays for work
    that is done early, or waits while the loop is in a transaction.
    """

    def __init__(self, threads: int, now_s: float) -> None:
        self._threads = threads
        self._noted_s = now_s
        self._device = 0.0
        self._tokenizer = 0.0
        self._loop = 0.0

    @property
    def busy(self) -> float:
        """The share of the time that is busy, 0 to 1."""
        return max(self._device, self._tokenizer, self._loop)

    def note(self, now_s: float, *, running: int, waited_s: float, tokenizing: float = 0.0) -> None:
        """Note that since the last call, `running` batches were with the engine and the loop waited for `waited_s`.

        `tokenizing`: calls that were with the tokenizer, for each of its threads.
        """
        elapsed_s = now_s - self._noted_s
        if elapsed_s <= 0:
            return
        self._noted_s = now_s
        weight = -math.expm1(-elapsed_s / AVERAGED_S)
        self._device += weight * (min(1.0, running / self._threads) - self._device)
        self._tokenizer += weight * (min(1.0, tokenizing) - self._tokenizer)
        self._loop += weight * (max(0.0, 1 - waited_s / elapsed_s) - self._loop)

    def skip(self, now_s: float) -> None:
        """Do not count the time since the last call: the loop did something else, such as connecting."""
        self._noted_s = now_s


class Cadence:
    """When the next transaction may begin.

    `longest_s`: the interval under load. `share`: how much of the time transactions may take at half load; 0 makes every
    interval the longest one. However low the load is, they take at most two thirds of the time, unless one alone takes
    longer than two thirds of `longest_s`.
    """

    def __init__(self, longest_s: float, share: float, now_s: float) -> None:
        self._longest_s = longest_s
        self._share = share
        self._tried_s = self._ended_s = now_s - longest_s
        self._costs_s: deque[float] = deque(maxlen=_COSTS)
        self._cost_s = 0.0

    @property
    def latest_s(self) -> float:
        """When the next transaction is due, even if only offsets have moved."""
        return self._tried_s + self._longest_s

    def earliest_s(self, load: float, idle_since_s: float | None = None) -> float:
        """When a finished article may be published, at this load.

        `idle_since_s`: since when nothing is in progress. Once nothing has been in progress for as long as a
        transaction takes, a backlog has ended, and waiting longer would gather no more work; the average load shows
        that only a second later.
        """
        if not self._share:
            return self.latest_s
        allowed = share_at_load(self._share, load)
        shortest_s = max(_MARKERS_S, self._cost_s / 2)
        pause_s = max(shortest_s, self._cost_s / allowed) if allowed else math.inf
        earliest_s = self._ended_s + pause_s
        if idle_since_s is not None:
            earliest_s = min(earliest_s, max(self._ended_s + shortest_s, idle_since_s + self._cost_s))
        return min(self.latest_s, earliest_s)

    def note_try(self, now_s: float) -> None:
        """Note that whatever is finished is published now, which may be nothing."""
        self._tried_s = self._ended_s = now_s

    def note_transaction(self, began_s: float, ended_s: float) -> None:
        """Note how long a transaction took."""
        self._costs_s.append(ended_s - began_s)
        self._cost_s = median(self._costs_s)
        self._ended_s = ended_s
