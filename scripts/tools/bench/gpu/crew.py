"""A crew: workers of one group, one process each, and bursts of articles for them. It needs Kafka's client.

python -m tools.bench.gpu.crew    # a worker: settings as a line of JSON; each further line is answered by a report
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import orjson
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from enricher.worker.loop.loop import Worker
from enricher.worker.runtime.watchdog import Watchdog
from enricher.worker.settings import Settings
from enricher.worker.wiring.loaded_tasks import load_tasks
from enricher.worker.wiring.workers import kafka_worker
from tools.bench.bench import PARTITIONS, Bench
from tools.bench.child import Child, tell
from tools.waiting import wait_until

_READY_S = 120.0
_ASK_S = 0.1
_REPORTED = ("published", "transactions", "last_commit_s")


@dataclass(frozen=True, slots=True)
class Burst:
    """The cost of a burst; `seconds` from the first article published to the last one committed."""

    articles: int
    seconds: float
    worker_cpu_s: float
    broker_cpu_s: float
    transactions: int


class Crew:
    """`size` workers with their own topics, started in parallel; `ready` waits until the group is stable."""

    def __init__(self, bench: Bench, closing: ExitStack, size: int) -> None:
        self.topics = closing.enter_context(bench.topics())
        self._bench = bench
        self._admin = AdminClient({"bootstrap.servers": bench.cluster.bootstrap_servers})
        self._workers = [closing.enter_context(Child("tools.bench.gpu.crew")) for _ in range(size)]
        for worker in self._workers:
            worker.say(bench.settings_for(self.topics).model_dump(mode="json"))

    def ready(self) -> None:
        """Wait until the group is stable and partitions are evenly assigned.

        Raises TimeoutError, and RuntimeError if a worker ends.
        """
        if not wait_until(self._even, _READY_S, _ASK_S):
            raise TimeoutError(f"partitions by worker after {_READY_S:g} s: {self._shares()}")

    def burst(self, values: Sequence[bytes]) -> Burst:
        """Publish evenly to all partitions and wait until all is committed. Raises TimeoutError."""
        before, after = self._reports(), list[dict[str, Any]]()
        meter, began_s = self._bench.meter(), time.monotonic()
        self._bench.publish(self.topics, values, evenly=True)

        def done() -> int:
            after[:] = self._reports()
            return int(_sum(after, "published") - _sum(before, "published"))

        if not wait_until(lambda: done() >= len(values), _READY_S, _ASK_S):
            raise TimeoutError(f"{done()} of {len(values)} articles in {_READY_S:g} s")
        load = meter.read()
        assert len(values) == _sum(after, "published") - _sum(before, "published"), "every article is published once"
        return Burst(
            articles=len(values),
            seconds=max(report["last_commit_s"] or 0.0 for report in after) - began_s,
            worker_cpu_s=_sum(after, "cpu_s") - _sum(before, "cpu_s"),
            broker_cpu_s=load.broker_cores * load.seconds,
            transactions=_sum(after, "transactions") - _sum(before, "transactions"),
        )

    def _reports(self) -> list[dict[str, Any]]:
        for worker in self._workers:
            worker.say({})
        return [worker.hear() for worker in self._workers]

    def _even(self) -> bool:
        for worker in self._workers:
            worker.require_running()
        shares = self._shares()
        return len(shares) == len(self._workers) and sum(shares) == PARTITIONS and max(shares) - min(shares) <= 1

    def _shares(self) -> list[int]:
        """Number of partitions of each member; empty while the group rebalances."""
        try:
            group = self._admin.describe_consumer_groups([self.topics.group])[self.topics.group].result(_READY_S)
        except KafkaException:
            return []  # the group does not exist until a member has joined
        if group.state.name != "STABLE":
            return []
        return [len(member.assignment.topic_partitions) for member in group.members]


def _sum(reports: Sequence[Mapping[str, Any]], name: str) -> Any:  # noqa: ANN401  some are counts, some are seconds
    return sum(report[name] for report in reports)


# ---- the worker's process


def main() -> None:
    """Run the worker until standard input ends, and answer each line of it with the worker's counters now."""
    logging.basicConfig(level=logging.ERROR)
    settings = Settings(**orjson.loads(sys.stdin.buffer.readline()))
    tasks = load_tasks(settings)
    with Watchdog() as watchdog:
        worker = kafka_worker(settings, tasks, guard=watchdog.guard)
        listener = threading.Thread(target=_listen, args=(worker,), name="commands", daemon=True)
        listener.start()
        worker.run()
    listener.join()


def _listen(worker: Worker) -> None:
    """Only counters that another thread may read, and the CPU time of this process."""
    try:
        for _ in sys.stdin.buffer:
            counters = {name: getattr(worker.counters, name) for name in _REPORTED}
            tell({**counters, "cpu_s": time.process_time()})
    finally:
        worker.stop()


if __name__ == "__main__":
    main()
