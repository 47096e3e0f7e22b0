"""One worker of the fault matrix; everything in it is real except the model (`stub`), which has two heads.

    python -m tools.chaos.worker        # settings as one line of JSON, then commands, one a line

The command `hang SECONDS` makes the next run of the model take that much longer. End of input stops the worker gracefully,
so that no worker outlives its parent. Exit codes are those of `enricher run`.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading

import orjson

from enricher.errors import FatalError
from enricher.worker.commands.running import stopped_by_signals
from enricher.worker.runtime.watchdog import ProcessTimer, Watchdog
from enricher.worker.settings import Settings
from enricher.worker.wiring.workers import kafka_worker
from tools.chaos.stub import RatingEngine, two_tasks

_LEAVE_S = 20.0
"""A worker whose parent has died and that has not stopped after this time is killed."""


def _obey(engine: RatingEngine) -> None:
    try:
        for line in sys.stdin:
            command, _, argument = line.partition(" ")
            assert command == "hang", command
            engine.hang_s = float(argument)
    finally:
        threading.Timer(_LEAVE_S, os._exit, (1,)).start()
        os.kill(os.getpid(), signal.SIGTERM)


def _run(settings: Settings) -> None:
    engine = RatingEngine()
    with stopped_by_signals() as signals, Watchdog(timer=ProcessTimer()) as watchdog:
        threading.Thread(target=_obey, args=[engine], name="orders", daemon=True).start()
        worker = kafka_worker(settings, two_tasks(settings, engine), guard=watchdog.guard)
        signals.stop = worker.stop
        worker.run(lambda: None)


def main() -> None:
    """Run the worker until it is stopped; exit as `enricher run` does."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)-7s %(name)s: %(message)s")
    logging.getLogger("librdkafka").setLevel(logging.ERROR)
    try:
        _run(Settings(**orjson.loads(sys.stdin.readline())))
    except FatalError as error:
        sys.stderr.write(f"enricher: {error}\n")
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
