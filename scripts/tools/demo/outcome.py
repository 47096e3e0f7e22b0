"""Watches the output topics like a consumer, and records when each record became visible."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Any

import orjson
from confluent_kafka import Message

from tools.closing import Closing
from tools.following import Follower
from tools.kafka.reader import Reader
from tools.outputs import STAGE, headers_of, source_of
from tools.topics import Topics

_VISIBLE_S = 10.0  # limit for records that must be visible already once the worker has ended


@dataclass(frozen=True, slots=True)
class Outcome:
    """One output: `value` is the enriched record, None for a dead letter."""

    value: dict[str, Any] | None
    waited_s: float
    """Seconds from the input's timestamp until a read_committed consumer saw the output."""


class Watcher(Closing):
    """Reads committed outputs from the beginning, in a thread."""

    def __init__(self, topics: Topics, *, expected: int) -> None:
        self._expected = expected
        self._outcomes: list[Outcome] = []
        self._complete = threading.Event()
        self._published = _publish_times(topics)
        outputs = (topics.output, topics.dead_letters)
        self._follower = Follower(topics.bootstrap_servers, outputs, self._note, name=f"{topics.group}-watcher")

    def close(self) -> None:
        self._follower.close()

    def all(self) -> list[Outcome]:
        """All outputs; waits a moment for the last ones."""
        self._complete.wait(_VISIBLE_S)
        return list(self._outcomes)

    def _note(self, message: Message) -> None:
        source = source_of(message)
        value = None if STAGE in headers_of(message) else orjson.loads(message.value() or b"null")
        self._outcomes.append(Outcome(value, time.time() - self._published[source.partition, source.offset]))
        if len(self._outcomes) >= self._expected:
            self._complete.set()


def _publish_times(topics: Topics) -> dict[tuple[int, int], float]:
    """Publish time of each input (seconds since the epoch), by partition and offset."""
    inputs = Reader(topics.bootstrap_servers, f"{topics.group}-watcher").records(topics.input)
    return {(each.partition() or 0, each.offset() or 0): each.timestamp()[1] / 1000 for each in inputs}
