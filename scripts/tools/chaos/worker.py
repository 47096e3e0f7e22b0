"""One worker of the fault matrix; everything in it is real except the model (`stub`).

    python -m tools.chaos.worker [two-tasks]        # settings as one line of JSON, then commands, one a line
    python -m tools.chaos.worker two-processes      # the parent of two such workers, as with --processes 2

Commands: `hang SECONDS` makes the next run of the model take that much longer; `lose` makes it lose a window. End of input
stops the worker gracefully, so that no worker outlives its parent. Exit codes are those of `enricher run`.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections import deque
from typing import TYPE_CHECKING
from unittest.mock import patch

import orjson

from enricher.errors import FatalError
from enricher.worker.commands.run import parent
from enricher.worker.commands.run.share import Share
from enricher.worker.commands.running import stopped_by_signals
from enricher.worker.processes import end_with_parent
from enricher.worker.runtime.watchdog import ProcessTimer, Watchdog
from enricher.worker.settings import Settings
from enricher.worker.wiring.workers import kafka_worker
from tools.chaos.stub import StubEngine, stub_model
from tools.chaos.stub_rating import RatingEngine, two_tasks
from tools.worker_parts import tasks_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

TWO_TASKS = "two-tasks"
"""Among the arguments: the worker also rates articles."""
TWO_PROCESSES = "two-processes"
"""Among the arguments: two workers under a parent, which takes no commands."""
_CHILD = "child"
"""The first argument of such a worker, before its share and its settings."""
_LEAVE_S = 20.0
"""A worker whose parent has died and that has not stopped after this time is killed."""


def _obey(engine: StubEngine) -> None:
    for line in sys.stdin:
        command, _, argument = line.partition(" ")
        if command.strip() == "hang":
            engine.hang_s = float(argument)
        elif command.strip() == "lose":
            engine.lose.set()


def _until_orphaned(obey: Callable[[], object]) -> None:
    try:
        obey()
    finally:
        threading.Timer(_LEAVE_S, os._exit, (1,)).start()
        os.kill(os.getpid(), signal.SIGTERM)


def _run(settings: Settings, arguments: Sequence[str], *, is_child: bool = False) -> None:
    rating = RatingEngine()
    engine = rating if TWO_TASKS in arguments else StubEngine()
    tasks = two_tasks(settings, rating) if engine is rating else tasks_of(settings, stub_model(engine))
    with stopped_by_signals() as signals, Watchdog(timer=ProcessTimer()) as watchdog:
        if is_child:
            end_with_parent()
        else:
            _start_orders(lambda: _obey(engine))
        worker = kafka_worker(settings, tasks, guard=watchdog.guard)
        signals.stop = worker.stop
        worker.run(lambda: None)


def _start_orders(obey: Callable[[], object]) -> None:
    threading.Thread(target=_until_orphaned, args=[obey], name="orders", daemon=True).start()


def _run_parent(settings: bytes, arguments: Sequence[str]) -> int:
    """The parent of `enricher run --processes 2`; only the command line of its children is another one."""

    def child_command(share: Share, _options: parent.RunOptions) -> Sequence[str]:
        return [sys.executable, "-m", "tools.chaos.worker", _CHILD, str(share), settings.decode(), *arguments]

    options = parent.RunOptions(until_caught_up=False, summary=None, report_every_s=10.0)
    with (
        stopped_by_signals() as signals,
        Watchdog(timer=ProcessTimer()) as watchdog,
        patch.object(parent, "child_command", child_command),
    ):
        processes = parent.worker_processes(Settings(**orjson.loads(settings)), 2, options)
        _start_orders(lambda: deque(sys.stdin, maxlen=0))
        signals.stop = processes.stop
        return processes.run(watchdog.guard)


def main() -> None:
    """Run the worker until it is stopped; exit as `enricher run` does."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)-7s %(name)s: %(message)s")
    logging.getLogger("librdkafka").setLevel(logging.ERROR)
    arguments = sys.argv[1:]
    try:
        if arguments[:1] == [_CHILD]:
            settings = Settings(**orjson.loads(arguments[2]))
            _run(Share.parse(arguments[1]).of(settings), arguments[3:], is_child=True)
        elif TWO_PROCESSES in arguments:
            arguments.remove(TWO_PROCESSES)
            sys.exit(_run_parent(sys.stdin.readline().strip().encode(), arguments))
        else:
            _run(Settings(**orjson.loads(sys.stdin.readline())), arguments)
    except FatalError as error:
        sys.stderr.write(f"enricher: {error}\n")
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
