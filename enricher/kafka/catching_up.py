"""Tells when the group has committed everything that was in the input topic at the start (`run --until-caught-up`)."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable

from confluent_kafka import Consumer, KafkaException

from enricher.kafka.client_errors import ClientErrors
from enricher.kafka.metadata import bounds_of, foreign, ours
from enricher.records import Partition

log = logging.getLogger(__name__)

_CHECK_S = 0.1  # each check is one request to the broker


class CatchingUp:
    """The ends at the start, compared with the group's committed offsets."""

    def __init__(self, consumer: Consumer, client_errors: ClientErrors, timeout_s: float) -> None:
        self._consumer = consumer
        self._client_errors = client_errors
        self._timeout_s = timeout_s
        self._ends: dict[Partition, int] = {}
        self._next_check_s = 0.0

    def note(self, partitions: Iterable[Partition]) -> None:
        """Note the current ends. Raises the client's errors."""
        bounds = {partition: bounds_of(self._consumer, partition, self._timeout_s) for partition in partitions}
        self._ends = {partition: end for partition, (low, end) in bounds.items() if end > low}
        records = sum(end - low for low, end in bounds.values())
        log.info("catching up with at most %d records; some of them may be committed already", records)

    def renew(self, consumer: Consumer) -> None:
        """Ask this one from now on."""
        self._consumer = consumer

    def done(self) -> bool:
        """True once the group has committed all these ends. May block for the request timeout."""
        if time.monotonic() < self._next_check_s:
            return False
        if not self._ends:
            return True
        try:
            wanted = [foreign(partition) for partition in self._ends]
            committed = self._consumer.committed(wanted, timeout=self._timeout_s)
        except KafkaException as exception:
            log.warning("cannot ask for the committed offsets: %s", self._client_errors.explain(exception.args[0]))
            return False
        finally:
            self._next_check_s = time.monotonic() + _CHECK_S
        return all(tp.offset >= self._ends[ours(tp)] for tp in committed)
