"""When partitions of a worker in this process came and went, on the clock that all processes of a machine share.

The worker's own functions are timed from outside. What happens inside the client is read from its debug lines, which
arrive within one turn of the loop.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from enricher.worker.kafka.assignment import Assignment
from enricher.worker.kafka.source import KafkaSource
from enricher.worker.loop.loop import Worker

DEBUG = {"consumer.debug": "cgrp"}
"""Properties that the client needs for `heard`."""
_HEARD = "Group is rebalancing"


@dataclass(frozen=True, slots=True)
class Moment:
    """Something began or ended, for these partitions.

    `what`: `joining` (the worker subscribed), `heard` (a heartbeat told of a rebalance), `revoking` to `revoked` (the last
    transaction), `assigning` to `assigned` (the look-up of where to begin), `record` (the first one since), `draining` to
    `drained`, and `leaving` to `left`.
    """

    what: str
    at_s: float
    partitions: list[int]


class Moments(logging.Handler):
    """Collects moments while `noting`."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self._moments: list[Moment] = []
        self._expected: set[int] = set()
        """Assigned partitions without a record so far."""

    def taken(self) -> list[Moment]:
        """All moments since the last call."""
        taken, self._moments = self._moments, []
        return taken

    @contextmanager
    def noting(self) -> Iterator[None]:
        """Inside the context the worker's functions are timed."""
        client_log = logging.getLogger("librdkafka")
        client_log.setLevel(logging.DEBUG)
        client_log.propagate = False
        client_log.addHandler(self)
        with ExitStack() as patched:
            for owner, name, begins, ends in (
                (KafkaSource, "open", "opening", "joining"),
                (KafkaSource, "close", "leaving", "left"),
                (Worker, "_drain", "draining", "drained"),
                (Worker, "revoked", "revoking", "revoked"),
                (Assignment, "add", "assigning", "assigned"),
            ):
                patched.enter_context(patch.object(owner, name, self._timed(getattr(owner, name), begins, ends)))
            patched.enter_context(patch.object(KafkaSource, "poll", self._polling(KafkaSource.poll)))
            yield

    def emit(self, record: logging.LogRecord) -> None:
        if _HEARD in record.getMessage():
            self._note("heard", ())

    def _note(self, what: str, partitions: Collection[int]) -> None:
        self._moments.append(Moment(what, time.monotonic(), sorted(partitions)))

    def _timed(self, function: Callable[..., Any], begins: str, ends: str) -> Callable[..., Any]:
        def timed(owner: object, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401  whatever the function takes
            numbers = _numbers(arguments)
            self._note(begins, numbers)
            try:
                return function(owner, *arguments, **named)
            finally:
                self._note(ends, numbers)
                if ends == "assigned":
                    self._expected.update(numbers)

        return timed

    def _polling(self, poll: Callable[..., Any]) -> Callable[..., Any]:
        def polling(source: KafkaSource, limit: int, timeout_s: float) -> Any:  # noqa: ANN401  what `poll` returns
            records = poll(source, limit, timeout_s)
            if self._expected and (first := self._expected.intersection(raw.partition.number for raw in records)):
                self._expected -= first
                self._note("record", first)
            return records

        return polling


def _numbers(arguments: tuple[Any, ...]) -> list[int]:
    """Partition numbers of a list of the client's or of our partitions; nothing for other arguments."""
    partitions = arguments[0] if arguments and isinstance(arguments[0], list) else []
    return [each.partition if hasattr(each, "partition") else each.number for each in partitions]
