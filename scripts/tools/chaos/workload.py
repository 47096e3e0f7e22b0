"""The publisher: articles at a steady rate from a background thread, past the proxy. Never waits for the workers."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from confluent_kafka import Producer

from tools.chaos.articles import Articles
from tools.topics import publish
from tools.waiting import Closing

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from confluent_kafka import KafkaError, Message

    from tools.chaos.articles import Input

    Make = Callable[[Articles, int], Input]

_TURN_S = 0.05
_MOST_BEHIND_S = 2.0
"""A publisher that was blocked catches up at most this much; more would flood the workers."""
_TIMEOUT_S = 60.0
_ONE_OF = 3
PARTITION_UA = -1
"""librdkafka's constant for "the partitioner decides, by the key"."""


class Workload(Closing):
    """Publishes `rate_per_s` articles per second to `topic` from `resume` on; with a `lane`, every third of them to that."""

    def __init__(
        self, bootstrap_servers: str, topic: str, articles: Articles, rate_per_s: float, *, lane: str = ""
    ) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._topic = topic
        self._lane = lane
        self._articles = articles
        self._rate_per_s = rate_per_s
        self._producer = self._connect()
        self._number = 0
        self._lock = threading.Lock()
        self._running = threading.Event()
        self._over = threading.Event()
        self.failed: list[str] = []
        self._thread = threading.Thread(target=self._publish, name="workload", daemon=True)
        self._thread.start()

    @property
    def published(self) -> int:
        """How many articles have been published so far, including aborted ones."""
        return self._number

    @property
    def acknowledged(self) -> bool:
        """Whether the brokers have acknowledged everything sent so far. Stable only while paused."""
        return not len(self._producer)

    def pause(self) -> None:
        self._running.clear()

    def resume(self) -> None:
        self._running.set()

    def large_poison(self, sizes_bytes: Sequence[int]) -> None:
        for size_bytes in sizes_bytes:
            self._send(self._producer, self._articles.large_poison(self._next(), size_bytes))

    def burst(self, count: int, partition: int = PARTITION_UA, *, make: Make = Articles.input) -> None:
        """Publish `count` inputs at once, to one partition or to all. Blocks until the brokers have acknowledged them.

        `make`: the method that makes an input of its number.
        """
        for _ in range(count):
            self._send(self._producer, make(self._articles, self._next()), partition)
        self.flush()

    def flush(self) -> None:
        """Wait until the brokers have acknowledged everything; raises RuntimeError if they do not."""
        if left := self._producer.flush(_TIMEOUT_S):
            raise RuntimeError(f"{left} inputs were not acknowledged")

    def reconnect(self) -> None:
        """Continue with a new producer, which has not cached a deleted topic. Only while paused and flushed."""
        self._producer = self._connect()

    def in_transaction(self, count: int, *, commit: bool) -> None:
        """Publish `count` articles in one transaction, which is committed or aborted. Blocks."""
        producer = Producer({**self._common("workload-transactional"), "transactional.id": f"{self._topic}-upstream"})
        producer.init_transactions(_TIMEOUT_S)
        producer.begin_transaction()
        for _ in range(count):
            article = self._articles.input(self._next())
            producer.produce(self._topic, article.value, article.key)
        producer.flush(_TIMEOUT_S)
        if commit:
            producer.commit_transaction(_TIMEOUT_S)
        else:
            producer.abort_transaction(_TIMEOUT_S)
        producer.close()

    def finish(self) -> None:
        """Stop publishing; raises RuntimeError unless the brokers have acknowledged everything."""
        self._over.set()
        self._thread.join()
        left = self._producer.flush(_TIMEOUT_S)
        if left or self.failed:
            raise RuntimeError(f"{left} inputs were not acknowledged, {len(self.failed)} failed: {self.failed[:1]}")

    def close(self) -> None:
        self._over.set()
        self._thread.join()

    def _connect(self) -> Producer:
        return Producer({**self._common("workload"), "enable.idempotence": True, "linger.ms": 20})

    def _common(self, name: str) -> dict[str, str | int]:
        return {
            "bootstrap.servers": self._bootstrap_servers,
            "client.id": name,
            "partitioner": "murmur2_random",
            "metadata.max.age.ms": 5_000,
            "topic.metadata.refresh.interval.ms": 5_000,
            "reconnect.backoff.max.ms": 1_000,
            "log_level": 0,
        }

    def _next(self) -> int:
        with self._lock:
            self._number += 1
            return self._number

    def _publish(self) -> None:
        due_s = time.monotonic()
        while not self._over.wait(_TURN_S):
            now_s = time.monotonic()
            if not self._running.is_set():
                due_s = now_s
            due_s = max(due_s, now_s - _MOST_BEHIND_S)
            while due_s < now_s and not self._over.is_set():
                number = self._next()
                topic = self._lane if self._lane and number % _ONE_OF == 0 else self._topic
                self._send(self._producer, self._articles.input(number), topic=topic)
                due_s += 1 / self._rate_per_s
            self._producer.poll(0)

    def _send(self, producer: Producer, article: Input, partition: int = PARTITION_UA, *, topic: str = "") -> None:
        key, value = article.key, article.value
        publish(producer, topic or self._topic, value, key, partition=partition, on_delivery=self._note_delivery)

    def _note_delivery(self, error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            self.failed.append(str(error))
