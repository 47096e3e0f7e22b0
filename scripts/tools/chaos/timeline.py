"""Records what becomes visible, and when: a read_committed consumer past the proxy, in a background thread."""

from __future__ import annotations

import threading
import time
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Self

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from tools.chaos.headers import source_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from confluent_kafka import Message

    from tools.chaos.headers import InputId

_LOOK_FOR_PARTITIONS_S = 3.0


class Moving:
    """When each input partition first published again: outputs written at `since_s` (epoch) or later."""

    def __init__(self, since_s: float) -> None:
        self.since_s = since_s
        self.first_s: dict[int, float] = {}
        """Seconds since the epoch when the first such output was seen, by input partition."""

    def note(self, partition: int, written_s: float) -> None:
        """An output that was written at `written_s` (epoch) has just been seen."""
        if written_s >= self.since_s and partition not in self.first_s:
            self.first_s[partition] = time.time()


class Timeline:
    """Reads `topics`. `per_second`: outputs seen, by whole second since `began_s` (monotonic)."""

    def __init__(self, bootstrap_servers: str, topics: list[str]) -> None:
        self.began_s = time.monotonic()
        self.per_second: Counter[int] = Counter()
        self.seen: Counter[InputId] = Counter()
        """How often an output of each input was seen."""
        self._topics = topics
        self._moving = Moving(float("inf"))
        self._assigned: set[tuple[str, int]] = set()
        self._ends: dict[tuple[str, int], int] = {}
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": "chaos-timeline",
                "client.id": "timeline",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 250,
                "reconnect.backoff.max.ms": 1_000,
                "log_level": 0,
            }
        )
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._read, name="timeline", daemon=True)
        self._thread.start()

    @property
    def total(self) -> int:
        """How many outputs were seen so far."""
        return self.seen.total()

    def moving_from_now(self) -> Moving:
        """Record which partitions publish from now on; replaces an earlier call's recording."""
        self._moving = Moving(time.time())
        return self._moving

    def has_seen(self, ends: Mapping[tuple[str, int], int]) -> bool:
        """Whether the reader has reached these offsets."""
        return all(self._ends.get(partition, 0) >= end for partition, end in ends.items())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
        self._consumer.close()

    def _read(self) -> None:
        look_s = 0.0
        while not self._over.is_set():
            if time.monotonic() >= look_s:
                look_s = time.monotonic() + _LOOK_FOR_PARTITIONS_S
                with suppress(KafkaException):
                    self._take_new_partitions()
            for message in [*self._consumer.consume(1, 0.1), *self._consumer.consume(500, 0)]:
                error = message.error()
                if error is None:
                    self._note(message)
                elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001  the client's name
                    self._ends[message.topic() or "", message.partition() or 0] = message.offset() or 0

    def _take_new_partitions(self) -> None:
        topics = self._consumer.list_topics(timeout=1.0).topics
        there = {(name, number) for name in self._topics if name in topics for number in topics[name].partitions}
        new = there - self._assigned
        if new:
            self._consumer.incremental_assign([TopicPartition(*each, OFFSET_BEGINNING) for each in new])
            self._assigned |= new

    def _note(self, message: Message) -> None:
        source = source_of(message)
        self.per_second[int(time.monotonic() - self.began_s)] += 1
        self.seen[source] += 1
        self._moving.note(source.partition, message.timestamp()[1] / 1000)
