"""Watches the output topics like a consumer, and records when each record became visible."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import orjson
from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, TopicPartition
from rich.console import Console

from tools.kafka.reader import Reader
from tools.topics import Topics

_SETTLE_S = 10.0  # limit for records that must be visible already once the worker has ended


@dataclass(frozen=True, slots=True)
class Outcome:
    """One output: `value` is the enriched record, None for a dead letter."""

    value: dict[str, Any] | None
    waited_s: float
    """Seconds from the input's timestamp until a read_committed consumer saw the output."""


class Watcher:
    """Reads committed outputs from the beginning, in a thread."""

    def __init__(self, topics: Topics, *, expected: int, console: Console) -> None:
        self._topics = topics
        self._expected = expected
        self._console = console
        self._outcomes: list[Outcome] = []
        self._over = threading.Event()
        self._complete = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watcher", daemon=True)
        self._published = _publish_times(topics)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def all(self) -> list[Outcome]:
        """All outputs; waits a moment for the last ones."""
        self._complete.wait(_SETTLE_S)
        return list(self._outcomes)

    def _watch(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self._topics.bootstrap_servers,
                "group.id": f"{self._topics.group}-watcher",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 20,
                "log_level": 0,
            }
        )
        partitions = [
            TopicPartition(topic, number, OFFSET_BEGINNING)
            for topic in (self._topics.output, self._topics.dead_letters)
            for number in consumer.list_topics(topic, timeout=10).topics[topic].partitions
        ]
        consumer.assign(partitions)
        try:
            while not self._over.is_set():
                self._note([message for message in consumer.consume(500, 0.05) if not message.error()])
        finally:
            consumer.close()

    def _note(self, messages: list[Message]) -> None:
        now_s = time.time()
        for message in messages:
            headers = {pair[0]: pair[1] for pair in message.headers() or () if isinstance(pair[1], bytes)}
            dead = "enricher.dlq.stage" in headers
            prefix = "enricher.dlq.source" if dead else "enricher.source"
            source = int(headers[f"{prefix}.partition"]), int(headers[f"{prefix}.offset"])
            value = None if dead else orjson.loads(message.value() or b"null")
            self._outcomes.append(Outcome(value, now_s - self._published[source]))
        if len(self._outcomes) >= self._expected:
            self._complete.set()


def _publish_times(topics: Topics) -> dict[tuple[int, int], float]:
    """Publish time of each input (seconds since the epoch), by partition and offset."""
    inputs = Reader(topics.bootstrap_servers, f"{topics.group}-watcher").records(topics.input)
    return {(each.partition() or 0, each.offset() or 0): each.timestamp()[1] / 1000 for each in inputs}
