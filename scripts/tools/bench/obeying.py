"""Runs a worker that answers commands on standard input with what it has done (see `Child`)."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import orjson

from enricher.worker.build.loaded_tasks import Tasks
from enricher.worker.build.workers import kafka_worker
from enricher.worker.loop.loop import Worker
from enricher.worker.runtime.watchdog import Watchdog
from enricher.worker.settings import Settings
from tools.bench.telling import tell

Command = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Report:
    """What a worker has done since its start, and its CPU time."""

    published: int
    transactions: int
    windows: int
    padded_tokens: int
    recoveries: int
    forgotten: int
    last_commit_s: float
    cpu_s: float

    @classmethod
    def of(cls, worker: Worker) -> Report:
        """The worker's counters now."""
        counters = worker.counters
        return cls(
            counters.published,
            counters.transactions,
            counters.windows,
            counters.padded_tokens,
            counters.recoveries,
            counters.forgotten,
            counters.last_commit_s or 0.0,
            time.process_time(),
        )


def run_obeying(
    settings: Settings,
    tasks: Tasks,
    obey: Callable[[Command], None] = lambda _: None,
    answer: Callable[[Worker], object] = Report.of,
    *,
    waits: bool = False,
    last: bool = False,
) -> None:
    """Run the worker until the input ends. Each command is given to `obey`, then answered.

    `waits`: it joins its group only on the command `{"join": true}`; `last`: it answers once more at its end.
    """
    may_join = threading.Event()

    def listen(worker: Worker) -> None:
        try:
            for line in sys.stdin.buffer:
                command: Command = orjson.loads(line)
                obey(command)
                if command.get("join"):
                    may_join.set()
                tell(answer(worker))
        finally:
            worker.stop()
            may_join.set()

    with Watchdog() as watchdog:
        worker = kafka_worker(settings, tasks, guard=watchdog.guard)
        threading.Thread(target=listen, args=(worker,), name="commands", daemon=True).start()
        if waits:
            may_join.wait()
        worker.run()
    if last:
        tell(answer(worker))
