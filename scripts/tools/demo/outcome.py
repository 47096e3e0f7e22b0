"""Watches the output topics like a consumer, and records when each record became visible."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import orjson
from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, TopicPartition
from rich.console import Console

_TOPICS = ("ENRICHER_KAFKA__OUTPUT_TOPIC", "ENRICHER_KAFKA__DEAD_LETTER_TOPIC")
_SETTLE_S = 10.0  # limit for records that must be visible already once the worker has ended


@dataclass(frozen=True, slots=True)
class Outcome:
    """One output: `value` is the enriched record, None for a dead letter."""

    value: dict[str, Any] | None
    waited_s: float
    """Seconds from the input's timestamp until a read_committed consumer saw the output."""


class Watcher:
    """Reads committed outputs from the beginning, in a thread."""

    def __init__(self, environment: Mapping[str, str], *, expected: int, console: Console) -> None:
        self._environment = environment
        self._expected = expected
        self._console = console
        self._outcomes: list[Outcome] = []
        self._over = threading.Event()
        self._complete = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watcher", daemon=True)
        self._published = _publish_times(environment)

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
        consumer = _consumer(self._environment)
        partitions = [
            TopicPartition(topic, number, OFFSET_BEGINNING)
            for topic in (self._environment[name] for name in _TOPICS)
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


def _publish_times(environment: Mapping[str, str]) -> dict[tuple[int, int], float]:
    """Publish time of each input (seconds since the epoch), by partition and offset."""
    consumer, topic = _consumer(environment), environment["ENRICHER_KAFKA__INPUT_TOPIC"]
    times: dict[tuple[int, int], float] = {}
    try:
        numbers = list(consumer.list_topics(topic, timeout=10).topics[topic].partitions)
        ends = {n: consumer.get_watermark_offsets(TopicPartition(topic, n), timeout=10)[1] for n in numbers}
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in numbers])
        while len(times) < sum(ends.values()):
            for message in consumer.consume(500, 0.2):
                source = (
                    message.partition() or 0,
                    message.offset() or 0,
                )  # never None here, though the client's types allow it
                times[source] = message.timestamp()[1] / 1000
    finally:
        consumer.close()
    return times


def _consumer(environment: Mapping[str, str]) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": environment["ENRICHER_KAFKA__BOOTSTRAP_SERVERS"],
            "group.id": f"{environment['ENRICHER_KAFKA__GROUP_ID']}-watcher",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 20,
            "log_level": 0,
        }
    )
