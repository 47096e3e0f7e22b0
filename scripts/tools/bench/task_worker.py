"""A worker with its tasks in its own process, for the leg `tasks`.

    python -m tools.bench.task_worker    # settings as JSON on standard input, then a line to begin (see Child)

It answers once when its models are loaded, and once with its counts when it has caught up.
"""

from __future__ import annotations

import logging
import sys

import orjson

from enricher.worker.build.loaded_tasks import load_tasks
from enricher.worker.build.workers import kafka_worker
from enricher.worker.runtime.watchdog import Watchdog
from enricher.worker.settings import Settings
from tools.bench.telling import tell


def main() -> None:
    """Run the worker until it has caught up."""
    logging.basicConfig(level=logging.ERROR)
    settings = Settings(**orjson.loads(sys.stdin.buffer.readline()))
    tasks = load_tasks(settings)
    with Watchdog() as watchdog:
        worker = kafka_worker(settings, tasks, guard=watchdog.guard, until_caught_up=True)
        tell({"passes": len(tasks.passes)})
        if sys.stdin.buffer.readline():
            worker.run()
            tell(worker.counters.as_dict())


if __name__ == "__main__":
    main()
