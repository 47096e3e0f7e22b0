"""Whether the group has committed everything that was in the input topic at the start (`run --until-caught-up`)."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable

from confluent_kafka import Consumer, KafkaException

from enricher.kafka.client import LastWord
from enricher.kafka.metadata import bounds_of, foreign, ours
from enricher.records import Partition

log = logging.getLogger(__name__)

_CHECK_S = 0.1  # asking costs the broker a request; ten a second are nothing to it


class CatchingUp:
    """The ends that were there at the start, and the group on its way to them."""

    def __init__(self, consumer: Consumer, last_word: LastWord, timeout_s: float) -> None:
        self._consumer = consumer
        self._last_word = last_word
        self._timeout_s = timeout_s
        self._ends: dict[Partition, int] = {}
        self._next_check_s = 0.0

    def note(self, partitions: Iterable[Partition]) -> None:
        """Take the ends as they are now. Raises the client's errors."""
        bounds = {partition: bounds_of(self._consumer, partition, self._timeout_s) for partition in partitions}
        self._ends = {partition: end for partition, (low, end) in bounds.items() if end > low}
        records = sum(end - low for low, end in bounds.values())
        log.info("to be caught up with: %d records at most, some of them may be done already", records)

    def renew(self, consumer: Consumer) -> None:
        """Ask this one from now on."""
        self._consumer = consumer

    def done(self) -> bool:
        """True when the group, whichever member, has committed everything up to these ends. May block briefly."""
        if time.monotonic() < self._next_check_s:
            return False
        if not self._ends:
            return True
        try:
            wanted = [foreign(partition) for partition in self._ends]
            committed = self._consumer.committed(wanted, timeout=self._timeout_s)
        except KafkaException as exception:
            log.warning("cannot ask for the committed offsets: %s", self._last_word.explain(exception.args[0]))
            return False
        finally:
            self._next_check_s = time.monotonic() + _CHECK_S
        return all(tp.offset >= self._ends[ours(tp)] for tp in committed)
