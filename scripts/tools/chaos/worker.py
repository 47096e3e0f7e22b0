"""One worker of the fault matrix; everything in it is real except the model (`stub`).

    python -m tools.chaos.worker                # reads commands, one a line
    python -m tools.chaos.worker replay ...     # a command of `enricher` as it ships, but for the model

The command `hang SECONDS` makes the next run of the model take that much longer. End of input stops the worker gracefully,
so that no worker outlives its parent. Exit codes are those of `enricher run`.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import signal
import sys
import threading
from dataclasses import replace

from enricher.errors import FatalError
from enricher.worker.commands.running import stopped_by_signals
from enricher.worker.kafka.properties import KafkaConfig
from enricher.worker.runtime.watchdog import ProcessTimer, Watchdog
from enricher.worker.settings import Settings, load_settings
from enricher.worker.wiring import workers
from enricher.worker.wiring.kafka_clients import kafka_config
from enricher.worker.wiring.loaded_tasks import Tasks
from tools.chaos.stub import StubEngine, stub_model
from tools.worker_parts import tasks_of

POLL_INTERVAL_S, _PARTITION_S = 10.0, 8.0
"""The time between two polls, and that for which a partition may deliver nothing: in production constants of minutes."""
_LEAVE_S = 20.0
"""A worker whose parent has died and that has not stopped after this time is killed."""


def _shorten_waits() -> None:
    """Many faults fit into a run."""

    def shorter_config(settings: Settings) -> KafkaConfig:
        return replace(kafka_config(settings), max_poll_interval_s=POLL_INTERVAL_S, partition_timeout_s=_PARTITION_S)

    setattr(workers, "kafka_config", shorter_config)  # noqa: B010  a plain assignment is to no exported name


def _obey(engine: StubEngine) -> None:
    try:
        for line in sys.stdin:
            command, _, argument = line.partition(" ")
            assert command == "hang", command
            engine.hang_s = float(argument)
    finally:
        threading.Timer(_LEAVE_S, os._exit, (1,)).start()
        os.kill(os.getpid(), signal.SIGTERM)


def _run(settings: Settings) -> None:
    engine = StubEngine()
    with stopped_by_signals() as signals, Watchdog(timer=ProcessTimer()) as watchdog:
        threading.Thread(target=_obey, args=[engine], name="orders", daemon=True).start()
        worker = workers.kafka_worker(settings, tasks_of(settings, stub_model(engine)), guard=watchdog.guard)
        signals.stop = worker.stop
        worker.run(lambda: None)


def main() -> None:
    """Run the worker until it is stopped; exit as `enricher run` does."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)-7s %(name)s: %(message)s")
    logging.getLogger("librdkafka").setLevel(logging.ERROR)
    _shorten_waits()
    try:
        _run(load_settings())
    except FatalError as error:
        sys.stderr.write(f"enricher: {error}\n")
        sys.exit(error.exit_code)


def command() -> None:
    """Run the command of the arguments, with the stub instead of the model."""
    from enricher import cli  # noqa: PLC0415  a worker does without
    from enricher.worker.commands import run  # noqa: PLC0415  the same

    def load(settings: Settings, **_warm_up: bool) -> Tasks:
        return tasks_of(settings, stub_model(StubEngine()))

    assert hasattr(run, "load_tasks"), "the worker is started in another way now"
    run.load_tasks = load
    faulthandler.enable()
    cli.main()


if __name__ == "__main__":
    command() if sys.argv[1:] else main()
