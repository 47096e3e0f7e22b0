"""A publisher that never waits for the worker, and a reader of what becomes visible, in one light process.

    python -m tools.bench.open_loop    # a Job as JSON on standard input, answers on standard output (see Child)

Every article's due time is fixed beforehand, and latency counts from that time: a slow worker can neither slow down the
publisher nor hide the wait of late articles (coordinated omission). Imports the Kafka client and nothing of the worker,
because this process shares the worker's cores.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import orjson
from confluent_kafka import Message, Producer

from tools.bench.child import tell
from tools.reading import Follower
from tools.topics import Topics
from tools.waiting import wait_until

_MARK = "open-loop-"
"""Prefix of this process's keys; the topics may hold other records too."""
_READY_S = 60.0
"""Limit until the worker has joined its group and published the first articles."""


@dataclass(frozen=True, slots=True)
class Job:
    """Articles to publish. `due_s`: seconds after the start, one per value; `grace_s`: the longest wait for outputs.

    Article `i` goes to partition `i % partitions`. The first `warm_up` values are published once beforehand, uncounted.
    """

    bootstrap_servers: str
    input_topic: str
    output_topics: list[str]
    partitions: int
    values: list[str]
    due_s: list[float]
    warm_up: int = 8
    grace_s: float = 60.0

    @classmethod
    def between(
        cls, topics: Topics, bootstrap_servers: str, partitions: int, values: Sequence[bytes], due_s: Sequence[float]
    ) -> Job:
        """A job that publishes `values` and reads the output topics."""
        outputs = [topics.output, topics.dead_letters]
        texts = [value.decode() for value in values]
        return cls(bootstrap_servers, topics.input, outputs, partitions, texts, list(due_s))

    @property
    def warm(self) -> int:
        """How many articles are published beforehand."""
        return min(self.warm_up, len(self.values))


@dataclass(slots=True)
class Publisher:
    """Sends each article when it is due, and records when it was sent (monotonic)."""

    job: Job
    producer: Producer
    sent_s: list[float] = field(default_factory=list)

    def warm_up(self) -> None:
        """Publish a few uncounted articles: connections, metadata, the worker's group."""
        for number, value in enumerate(self.job.values[: self.job.warm_up]):
            self._send(f"warm-{number}", number, value)
        self.producer.flush(_READY_S)

    def run(self, start_s: float) -> None:
        """Publish all articles, each at its due time or as soon as possible after it."""
        for number, (due_s, value) in enumerate(zip(self.job.due_s, self.job.values, strict=True)):
            self._wait_until(start_s + due_s)
            self.sent_s.append(time.monotonic())
            self._send(str(number), number, value)
        self.producer.flush(_READY_S)

    def _wait_until(self, due_s: float) -> None:
        self.producer.poll(0)
        if (left_s := due_s - time.monotonic()) > 0:
            time.sleep(left_s)

    def _send(self, name: str, number: int, value: str) -> None:
        partition = number % self.job.partitions
        self.producer.produce(self.job.input_topic, value, _MARK + name, partition=partition)


def run(job: Job, tell: Callable[[dict[str, Any]], None]) -> None:
    """Warm up, report the start, publish, wait until all is visible, report what was seen. Raises TimeoutError."""
    publisher = Publisher(job, Producer({"bootstrap.servers": job.bootstrap_servers, "linger.ms": 0}))
    seen_at_s = dict[str, float]()

    def note(message: Message) -> None:
        key = message.key()
        assert isinstance(key, bytes), "every article was sent with a key"
        if (name := key.decode()).startswith(_MARK):
            seen_at_s.setdefault(name, time.monotonic())

    def wait_for(count: int, timeout_s: float) -> None:
        if not wait_until(lambda: len(seen_at_s) >= count, timeout_s, 0.02):
            raise TimeoutError(f"{len(seen_at_s)} of {count} articles became visible within {timeout_s:g} s")

    with closing(Follower(job.bootstrap_servers, job.output_topics, note, name="bench-reader")):
        publisher.warm_up()
        wait_for(job.warm, _READY_S)
        start_s = time.monotonic() + 0.1
        tell({"begins": True})
        publisher.run(start_s)
        wait_for(job.warm + len(job.values), job.grace_s)
    seen_s = [seen_at_s[f"{_MARK}{number}"] - start_s for number in range(len(job.values))]
    tell({"seen_s": seen_s, "sent_s": [at_s - start_s for at_s in publisher.sent_s]})


def main() -> None:
    """Run one job, then stay until told to end: a load meter counts only living processes."""
    run(Job(**orjson.loads(sys.stdin.buffer.readline())), tell)
    sys.stdin.buffer.read()


if __name__ == "__main__":
    main()
