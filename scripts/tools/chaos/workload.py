"""The published inputs, among them every special case, and the publisher, past the proxy, which never waits for the workers.

The kind of the n-th input depends on n alone, so a run can be repeated.
"""

from __future__ import annotations

import threading
import time
from itertools import count
from random import Random
from typing import NamedTuple

import orjson
from confluent_kafka import KafkaError, Message, Producer

from tools import ARTICLES
from tools.topics import publish
from tools.waiting import Closing

_BAD_VALUES = (b"{", b"[]", b'{"id": 7, "body": "x"}', b"\xff\xfe", b'{"id": "no-body"}')
_EVERY_TOMBSTONE, _EVERY_BAD, _EVERY_UNBEARABLE = 101, 53, 97


class Input(NamedTuple):
    """Key and value of an input; the value is None for a tombstone."""

    key: bytes
    value: bytes | None


class Articles:
    """Inputs by number; every id and key starts with `prefix`."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        texts = [orjson.loads(line)["body"].split() for line in ARTICLES.read_bytes().splitlines()]
        # Of plain letters, which are whole words by every rule: reference.py need not know that of the worker.
        self._words = [word for text in texts for word in text if word.isascii() and word.isalpha()]

    def input(self, number: int) -> Input:
        """The usual mix: 1 % tombstones, 3 % dead letters."""
        if number % _EVERY_TOMBSTONE == 5:
            return Input(self._key(number), None)
        if number % _EVERY_BAD == 7:
            return Input(self._key(number), _BAD_VALUES[number % len(_BAD_VALUES)])
        return self._article(number, " unbearable" if number % _EVERY_UNBEARABLE == 11 else "")

    def _key(self, number: int) -> bytes:
        return f"{self._prefix}-{number}".encode()

    def _article(self, number: int, ending: str) -> Input:
        chosen = Random(number)  # noqa: S311  to be repeatable, not to be secret
        start, length = chosen.randrange(len(self._words) - 100), chosen.randrange(5, 60)
        title, body = self._words[start : start + 5], self._words[start + 5 : start + 5 + length]
        key = self._key(number)
        article = {"id": key.decode(), "title": " ".join(title), "body": " ".join(body) + ending}
        return Input(key, orjson.dumps(article))


_TURN_S = 0.05
_MOST_BEHIND_S = 2.0
"""A publisher that was blocked catches up at most this much; more would flood the workers."""
_TIMEOUT_S = 60.0
PARTITION_UA = -1
"""librdkafka's constant for "the partitioner decides, by the key"."""


class Workload(Closing):
    """Publishes `rate_per_s` articles per second to `topic` from `resume` on."""

    def __init__(self, bootstrap_servers: str, topic: str, articles: Articles, rate_per_s: float) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._topic = topic
        self._articles = articles
        self._rate_per_s = rate_per_s
        self._producer = self._connect()
        self._numbers = count(1)
        self._running = threading.Event()
        self._over = threading.Event()
        self.failed: list[str] = []
        self._thread = threading.Thread(target=self._publish, name="workload", daemon=True)
        self._thread.start()

    def pause(self) -> None:
        self._running.clear()

    def resume(self) -> None:
        self._running.set()

    def burst(self, inputs: int, partition: int = PARTITION_UA) -> None:
        """Publish so many inputs at once, to one partition or to all. Blocks until the brokers have acknowledged them."""
        for _ in range(inputs):
            self._send(partition)
        self.flush()

    def flush(self) -> None:
        """Wait until the brokers have acknowledged everything; raises RuntimeError if they do not."""
        if left := self._producer.flush(_TIMEOUT_S):
            raise RuntimeError(f"{left} inputs were not acknowledged")

    def reconnect(self) -> None:
        """Continue with a new producer, which has not cached a deleted topic. Only while paused and flushed."""
        self._producer = self._connect()

    def finish(self) -> None:
        """Stop publishing; raises RuntimeError unless the brokers have acknowledged everything."""
        self.close()
        self.flush()
        if self.failed:
            raise RuntimeError(f"{len(self.failed)} inputs failed: {self.failed[:1]}")

    def close(self) -> None:
        self._over.set()
        self._thread.join()

    def _connect(self) -> Producer:
        return Producer(
            {
                "bootstrap.servers": self._bootstrap_servers,
                "client.id": "workload",
                "enable.idempotence": True,
                "linger.ms": 20,
                "partitioner": "murmur2_random",
                "metadata.max.age.ms": 5_000,
                "topic.metadata.refresh.interval.ms": 5_000,
                "reconnect.backoff.max.ms": 1_000,
                "log_level": 0,
            }
        )

    def _publish(self) -> None:
        due_s = time.monotonic()
        while not self._over.wait(_TURN_S):
            now_s = time.monotonic()
            if not self._running.is_set():
                due_s = now_s
            due_s = max(due_s, now_s - _MOST_BEHIND_S)
            while due_s < now_s and not self._over.is_set():
                self._send()
                due_s += 1 / self._rate_per_s
            self._producer.poll(0)

    def _send(self, partition: int = PARTITION_UA) -> None:
        key, value = self._articles.input(next(self._numbers))
        publish(self._producer, self._topic, value, key, partition=partition, on_delivery=self._note_delivery)

    def _note_delivery(self, error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            self.failed.append(str(error))
