"""A crew: `enricher run` with several processes of one group, and bursts of articles for them. It needs Kafka's client."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import psutil
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from tools import enricher_command
from tools.bench.bench import PARTITIONS, Bench
from tools.bench.machine import cpu_s
from tools.waiting import wait_until

_READY_S = 120.0
_ASK_S = 0.02
"""A burst takes seconds, so that its end is known well enough."""


@dataclass(frozen=True, slots=True)
class Burst:
    """The cost of a burst; `seconds` from the first article published to the last one committed."""

    articles: int
    seconds: float
    worker_cpu_s: float
    broker_cpu_s: float


class Crew:
    """`size` processes with topics of their own; `ready` waits until the group is stable."""

    def __init__(self, bench: Bench, closing: ExitStack, size: int) -> None:
        self.topics = closing.enter_context(bench.topics())
        self._bench = bench
        self._size = size
        servers = self.topics.bootstrap_servers
        self._admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
        # It asks for the group's offsets, and never joins.
        group = Consumer({"bootstrap.servers": servers, "log_level": 0, "group.id": self.topics.group})
        self._group = closing.enter_context(contextlib.closing(group))
        run = ("run", "--quiet", "--processes", str(size))
        self._parent = closing.enter_context(enricher_command.running(*run, variables=self.topics.variables()))

    def ready(self) -> None:
        """Wait until the group is stable and partitions are evenly assigned.

        Raises TimeoutError, and RuntimeError if a worker ends, which ends all.
        """
        if not wait_until(self._even, _READY_S, _ASK_S):
            raise TimeoutError(f"partitions by worker after {_READY_S:g} s: {self._shares()}")

    def burst(self, values: Sequence[bytes]) -> Burst:
        """Publish evenly to all partitions and wait until all is committed. Raises TimeoutError."""
        committed, worker_cpu_s = self._committed(), self._cpu_s()
        meter, began_s = self._bench.meter(), time.monotonic()
        self._bench.publish(self.topics, values, evenly=True)
        if not wait_until(lambda: self._committed() >= committed + len(values), _READY_S, _ASK_S):
            raise TimeoutError(f"{self._committed() - committed} of {len(values)} articles in {_READY_S:g} s")
        seconds, load = time.monotonic() - began_s, meter.read()
        return Burst(len(values), seconds, self._cpu_s() - worker_cpu_s, load.broker_cores * load.seconds)

    def _committed(self) -> int:
        """The group's progress in articles: the publisher writes no transactions, so each article is one offset."""
        partitions = [TopicPartition(self.topics.input, number) for number in range(PARTITIONS)]
        return sum(max(0, each.offset) for each in self._group.committed(partitions, timeout=_READY_S))

    def _cpu_s(self) -> float:
        children = psutil.Process(self._parent.pid).children(recursive=True)
        return sum(map(cpu_s, (self._parent.pid, *(child.pid for child in children))))

    def _even(self) -> bool:
        if (code := self._parent.poll()) is not None:
            raise RuntimeError(f"the workers ended with code {code}; see their messages above")
        shares = self._shares()
        return len(shares) == self._size and sum(shares) == PARTITIONS and max(shares) - min(shares) <= 1

    def _shares(self) -> list[int]:
        """Number of partitions of each member; empty while the group rebalances."""
        try:
            group = self._admin.describe_consumer_groups([self.topics.group])[self.topics.group].result(_READY_S)
        except KafkaException:
            return []  # the group does not exist until a member has joined
        if group.state.name != "STABLE":
            return []
        return [len(member.assignment.topic_partitions) for member in group.members]
