"""A worker whose model ends the process, as a crash inside a library does. Settings come from the environment.

    python tests/kafka/killing_worker.py

All of it is real but the model. Ends when it is caught up.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from zlib import crc32

from enricher.app.building import kafka_worker
from enricher.app.tasks import Tasks
from enricher.commands.signals import stopped_by_signals
from enricher.errors import FatalError
from enricher.records import Batch, BatchResult
from enricher.runtime.watchdog import Watchdog
from enricher.settings import load_settings
from tools.chaos.stub import StubEngine, stub_model

KILLING_WORD = "abracadabra"
_KILLING_ID = crc32(KILLING_WORD.encode()) & 0x7FFFFFFF


class KillingEngine(StubEngine):
    """Kills the process at a certain word."""

    def run(self, batch: Batch) -> BatchResult:
        """Like the stub, if it survives."""
        if any(_KILLING_ID in window.ids for window in batch.windows):
            os.kill(os.getpid(), signal.SIGKILL)
        return super().run(batch)


def main() -> None:
    """Work until caught up, and exit as the command line does."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)-7s %(name)s: %(message)s")
    try:
        with stopped_by_signals() as signals, Watchdog() as watchdog:
            settings = load_settings()
            tasks = Tasks.of(settings, stub_model(KillingEngine()))
            worker = kafka_worker(settings, tasks, guard=watchdog.guard, until_caught_up=True)
            signals.stop = worker.stop
            worker.run()
    except FatalError as error:
        sys.stderr.write(f"enricher: {error}\n")
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
