"""Progress of a replay, of all its processes together."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterator
from contextlib import closing, contextmanager

from enricher.errors import BrokerError
from enricher.operate.inspect.inspector import Inspector
from enricher.operate.lag.command import age_text
from enricher.operate.replay.pinning import read_pinned
from enricher.worker.commands.progress import repeating
from enricher.worker.kafka.shared.client import KafkaConfig
from enricher.worker.stats.counters import Counters

log = logging.getLogger(__name__)

_AVERAGED = 6
"""Reports over which the rate is averaged."""


@contextmanager
def left_lines(config: KafkaConfig, counters: Counters, every_s: float) -> Iterator[None]:
    """Log every `every_s` seconds how much of the range is left and how long that will take, while the body runs."""
    with closing(Inspector(config)) as ask:
        estimate = Estimate()

        def report() -> None:
            try:
                pinned = read_pinned(ask, config)
            except BrokerError as error:
                log.warning("cannot find out how much is left: %s", error)
                return
            if pinned:
                left_s = estimate.left_s(pinned.left, time.monotonic())
                left = "unknown" if left_s is None else f"about {age_text(left_s)}"
                log.info("%d published here; at most %d records left, %s", counters.published, pinned.left, left)

        with repeating(report, every_s):
            yield


class Estimate:
    """How long the rest takes at the rate of the last minute or so."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque(maxlen=_AVERAGED + 1)

    def left_s(self, left: int, now_s: float) -> float | None:
        """Seconds until nothing is left; None while nothing has moved."""
        self._seen.append((now_s, left))
        first_s, first_left = self._seen[0]
        done = first_left - left
        return left * (now_s - first_s) / done if done > 0 else None
