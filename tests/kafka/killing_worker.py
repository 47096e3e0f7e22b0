"""`stub_worker.py`, but its model ends the process at a certain word, as a crash inside a library does."""

from __future__ import annotations

import os
import signal
from zlib import crc32

from support import stub_worker

from enricher import cli
from enricher.worker.records import Batch, BatchResult
from tools.chaos.stub import StubEngine

KILLING_WORD = "abracadabra"
_KILLING_ID = crc32(KILLING_WORD.encode()) & 0x7FFFFFFF


class KillingEngine(StubEngine):
    """Kills the process at a certain word."""

    def run(self, batch: Batch) -> BatchResult:
        """Like the stub, if it survives."""
        if any(_KILLING_ID in window.ids for window in batch.windows):
            os.kill(os.getpid(), signal.SIGKILL)
        return super().run(batch)


if __name__ == "__main__":
    stub_worker.install(KillingEngine)
    cli.main()
