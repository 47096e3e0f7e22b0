"""Follows topics in a thread: what a read_committed consumer sees, as soon as it sees it.

A plain client, as `kafka.reader`: what it says of a worker's outputs owes nothing to the worker's code.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import TYPE_CHECKING

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from tools.closing import Closing

if TYPE_CHECKING:
    from confluent_kafka import Message

_ASK_S, _WAIT_S = 10.0, 0.1


class Follower(Closing):
    """Reads all partitions of `topics` from their beginnings, and calls `note` in its thread with each record.

    `name`: of its group, client and thread. `look_every_s`: how often it looks for further partitions; None: never.
    `properties`: of the client, besides.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        topics: Sequence[str],
        note: Callable[[Message], None],
        *,
        name: str,
        look_every_s: float | None = None,
        properties: Mapping[str, str | bool] = MappingProxyType({}),
    ) -> None:
        self.ends: dict[tuple[str, int], int] = {}
        """The end of each partition, once it was reached; only with the property `enable.partition.eof`."""
        self._topics = topics
        self._note = note
        self._look_every_s = look_every_s
        self._assigned: set[tuple[str, int]] = set()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": name,
                "client.id": name,
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "reconnect.backoff.max.ms": 1_000,
                "log_level": 0,
                **properties,
            }
        )
        self._take_new_partitions(_ASK_S)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._follow, name=name, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._over.set()
        self._thread.join()
        self._consumer.close()

    def _follow(self) -> None:
        looked_s = time.monotonic()
        while not self._over.is_set():
            if self._look_every_s is not None and time.monotonic() > looked_s + self._look_every_s:
                looked_s = time.monotonic()
                with suppress(KafkaException):
                    self._take_new_partitions(1.0)
            # consume() waits until it has as many records as asked for, so with a timeout it is asked for one.
            for message in [*self._consumer.consume(1, _WAIT_S), *self._consumer.consume(500, 0)]:
                error = message.error()
                if error is None:
                    self._note(message)
                elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001  the client's name
                    self.ends[message.topic() or "", message.partition() or 0] = message.offset() or 0

    def _take_new_partitions(self, timeout_s: float) -> None:
        topics = self._consumer.list_topics(timeout=timeout_s).topics
        there = {(name, number) for name in self._topics if name in topics for number in topics[name].partitions}
        if new := there - self._assigned:
            self._consumer.incremental_assign([TopicPartition(*each, OFFSET_BEGINNING) for each in new])
            self._assigned |= new
