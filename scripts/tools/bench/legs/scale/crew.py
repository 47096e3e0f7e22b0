"""A crew: stub workers of one group, one process each, and bursts of articles for them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tools.bench.bench import PARTITIONS, Bench
from tools.bench.child import Child
from tools.bench.machine import Load
from tools.bench.repeating import Run
from tools.waiting import wait_until

BATCH_TOKENS = 8192
"""The batch size of a GPU, for which the stub stands."""
_READY_S = 120.0
_ASK_S = 0.1


class Crew:
    """`size` workers with their own topics, started in parallel; `ready` waits until the group is stable."""

    def __init__(
        self,
        bench: Bench,
        closing: ExitStack,
        size: int,
        *,
        module: str = "tools.bench.stub_worker",
        batch_tokens: int | None = BATCH_TOKENS,
        **worker: object,
    ) -> None:
        self.bench = bench
        self._module = module
        self.topics = closing.enter_context(bench.topics())
        self._changes: dict[str, Mapping[str, object]] = {
            "batching": {"max_batch_tokens": batch_tokens},
            "worker": worker,
        }
        self._closing = closing
        self._admin = AdminClient({"bootstrap.servers": bench.cluster.bootstrap_servers})
        self.workers: list[Child] = []
        for _ in range(size):
            self.hire()

    def hire(self) -> Child:
        """Start one more worker, which joins the group by itself."""
        worker = self._closing.enter_context(Child(self._module))
        worker.say(self.bench.settings_for(self.topics, **self._changes).model_dump(mode="json"))
        self.workers.append(worker)
        return worker

    def ready(self) -> float:
        """Wait until the group is stable and partitions are evenly assigned; returns that time.

        Raises TimeoutError, and RuntimeError if a worker ends.
        """
        if not wait_until(self._even, _READY_S, _ASK_S):
            raise TimeoutError(f"partitions by worker after {_READY_S:g} s: {self._shares()}")
        return time.monotonic()

    def command(self, **command: object) -> list[dict[str, Any]]:
        """Send all workers a command; returns their reports."""
        for worker in self.workers:
            worker.say(command)
        return [worker.hear() for worker in self.workers]

    def burst(self, values: Sequence[bytes]) -> Burst:
        """Publish evenly to all partitions and wait until all is committed. Raises TimeoutError."""
        before, after, meter, began_s = self.command(), list[dict[str, Any]](), self.bench.meter(), time.monotonic()
        self.bench.publish(self.topics, values, evenly=True)

        def done() -> int:
            after[:] = self.command()
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
            padded_tokens=_sum(after, "padded_tokens") - _sum(before, "padded_tokens"),
            load=load,
        )

    def _even(self) -> bool:
        for worker in self.workers:
            worker.require_running()
        shares = self._shares()
        return len(shares) == len(self.workers) and sum(shares) == PARTITIONS and max(shares) - min(shares) <= 1

    def _shares(self) -> list[int]:
        """Number of partitions of each member; empty while the group rebalances."""
        try:
            group = self._admin.describe_consumer_groups([self.topics.group])[self.topics.group].result(_READY_S)
        except KafkaException:
            return []  # the group does not exist until a member has joined
        if group.state.name != "STABLE":
            return []
        return [len(member.assignment.topic_partitions) for member in group.members]


@dataclass(frozen=True, slots=True)
class Burst:
    """The cost of a burst; `seconds` from the first article published to the last one committed."""

    articles: int
    seconds: float
    worker_cpu_s: float
    broker_cpu_s: float
    transactions: int
    padded_tokens: int
    load: Load

    @property
    def run(self) -> Run:
        detail: Mapping[str, Any] = {
            "articles_per_cpu_s": self.articles / self.worker_cpu_s,
            "worker_cores": self.worker_cpu_s / self.seconds,
            "broker_cpu_s": self.broker_cpu_s,
            "broker_cores": self.load.broker_cores,
            "worker_cpu_s": self.worker_cpu_s,
            "articles": self.articles,
            "transactions": self.transactions,
            "transactions_per_s": self.transactions / self.seconds,
        }
        return Run(self.articles / self.seconds, self.load, detail)


def _sum(reports: Sequence[Mapping[str, Any]], name: str) -> Any:  # noqa: ANN401  some are counts, some are seconds
    return sum(report[name] for report in reports)
