"""Runs a worker that answers commands on standard input with what it has done (see `Child`).

    python -m tools.bench.obeying    # a worker with its real models: settings as a line of JSON, then commands

`{"join": true}` lets a worker join its group that waits for it; all other commands are the caller's.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import orjson

from enricher.worker.build.loaded_tasks import Tasks, load_tasks
from enricher.worker.build.workers import kafka_worker
from enricher.worker.loop.loop import Worker
from enricher.worker.runtime.watchdog import Watchdog
from enricher.worker.settings import Settings
from tools.bench.child import tell

Command = dict[str, Any]
_REPORTED = ("records", "published", "transactions", "padded_tokens", "first_read_s", "last_commit_s")


def read_settings() -> Settings:
    """The settings of this worker: the first line of standard input."""
    logging.basicConfig(level=logging.ERROR)
    return Settings(**orjson.loads(sys.stdin.buffer.readline()))


def report(worker: Worker) -> dict[str, Any]:
    """Some of the worker's counters now, only such as another thread may read, and the CPU time of its process."""
    return {**{name: getattr(worker.counters, name) for name in _REPORTED}, "cpu_s": time.process_time()}


def run_obeying(
    settings: Settings,
    tasks: Tasks,
    obey: Callable[[Command], None] = lambda _: None,
    answer: Callable[[Worker], object] = report,
    *,
    waits: bool = False,
    until_caught_up: bool = False,
) -> None:
    """Run the worker until the input ends. Each command is given to `obey`, then answered.

    `waits`: it joins its group only on the command `{"join": true}`, and answers once more when it has left it.
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
        worker = kafka_worker(settings, tasks, guard=watchdog.guard, until_caught_up=until_caught_up)
        listener = threading.Thread(target=listen, args=(worker,), name="commands", daemon=True)
        listener.start()
        if waits:
            may_join.wait()
        worker.run()
    if waits:
        tell(answer(worker))
    listener.join()


def main() -> None:
    settings = read_settings()
    run_obeying(settings, load_tasks(settings))


if __name__ == "__main__":
    main()
