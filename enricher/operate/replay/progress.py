"""Progress of a replay, of all its processes together."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import closing, contextmanager

from enricher.errors import BrokerError
from enricher.operate.inspect.inspector import Inspector
from enricher.operate.replay.pinning import read_pinned
from enricher.worker.commands.progress import repeating
from enricher.worker.kafka.shared.client import KafkaConfig
from enricher.worker.stats.counters import Counters

log = logging.getLogger(__name__)


@contextmanager
def left_lines(config: KafkaConfig, counters: Counters, every_s: float) -> Iterator[None]:
    """Log every `every_s` seconds how much of the range is left, while the body runs."""
    with closing(Inspector(config)) as ask:

        def report() -> None:
            try:
                pinned = read_pinned(ask, config)
            except BrokerError as error:
                log.warning("cannot find out how much is left: %s", error)
                return
            if pinned:
                log.info("%d published here; at most %d records left", counters.published, pinned.left)

        with repeating(report, every_s):
            yield
