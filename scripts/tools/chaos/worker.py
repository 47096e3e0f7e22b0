"""One worker of the fault matrix; everything in it is real except the model (`stub`).

    python -m tools.chaos.worker [two-tasks] [FLAW ...]    # settings as one line of JSON, then commands, one a line

Commands: `hang SECONDS` makes the next run of the model take that much longer; `lose` makes it lose a window. End of input
stops the worker gracefully, so that no worker outlives its parent. A flaw is a defence that is switched off (`flaws`).
Exit codes are those of `enricher run`.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from typing import TYPE_CHECKING

import orjson

from enricher.app.building import kafka_worker
from enricher.app.tasks import Tasks
from enricher.commands.signals import stopped_by_signals
from enricher.errors import FatalError
from enricher.settings import Settings
from tools.chaos.flaws import switched_off, watchdog_without
from tools.chaos.stub import StubEngine, stub_model
from tools.chaos.stub_rating import RatingEngine, two_tasks

if TYPE_CHECKING:
    from collections.abc import Sequence

TWO_TASKS = "two-tasks"
"""Among the arguments: the worker also rates articles."""
_LEAVE_S = 20.0
"""A worker whose parent has died and that has not stopped after this time is killed."""


def _obey(engine: StubEngine, rating: RatingEngine) -> None:
    for line in sys.stdin:
        command, _, argument = line.partition(" ")
        if command.strip() == "hang":
            engine.hang_s = rating.hang_s = float(argument)
        elif command.strip() == "lose":
            engine.lose.set()


def _obey_until_orphaned(engine: StubEngine, rating: RatingEngine) -> None:
    try:
        _obey(engine, rating)
    finally:
        threading.Timer(_LEAVE_S, os._exit, (1,)).start()
        os.kill(os.getpid(), signal.SIGTERM)


def _run(settings: Settings, flaws: Sequence[str]) -> None:
    engine, rating = StubEngine(), RatingEngine()
    both = TWO_TASKS in flaws
    flaws = [flaw for flaw in flaws if flaw != TWO_TASKS]
    tasks = two_tasks(settings, engine, rating) if both else Tasks.of(settings, stub_model(engine))
    with stopped_by_signals() as signals, watchdog_without(flaws) as watchdog:
        threading.Thread(target=_obey_until_orphaned, args=(engine, rating), name="orders", daemon=True).start()
        with switched_off(flaws):
            worker = kafka_worker(settings, tasks, guard=watchdog.guard)
        signals.stop = worker.stop
        worker.run()


def main() -> None:
    """Run the worker until it is stopped; exit as `enricher run` does."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)-7s %(name)s: %(message)s")
    logging.getLogger("librdkafka").setLevel(logging.ERROR)
    try:
        _run(Settings(**orjson.loads(sys.stdin.readline())), sys.argv[1:])
    except FatalError as error:
        sys.stderr.write(f"enricher: {error}\n")
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
