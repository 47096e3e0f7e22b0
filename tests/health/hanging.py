"""`enricher` in a separate process with a stub instead of the model, which waits while a file exists.

    python tests/health/hanging.py FOLDER run ...    # FOLDER/loading: it does not load; FOLDER/running: it does not run
                                                     # FOLDER/holding: a run never gives the interpreter's lock back
                                                     # FOLDER/hasty: the start may take 4 s

Everything else is unchanged: a hung device looks like a run that does not return.
"""

from __future__ import annotations

import ctypes
import sys
import time
from collections.abc import Callable
from pathlib import Path

from support import stub_worker

from enricher import cli
from enricher.worker.commands import run as run_command
from enricher.worker.records import Batch, BatchResult
from enricher.worker.settings import Settings
from enricher.worker.wiring.loaded_tasks import Tasks
from tools.chaos.stub import StubEngine


def main(folder: Path) -> None:
    """Install the gates, and run the command line."""

    class HangingEngine(StubEngine):
        """Waits before it runs."""

        def run(self, batch: Batch) -> BatchResult:
            """Run the stub, behind the gates."""
            _while_there(folder / "running")
            if (folder / "holding").exists():
                _hold_the_lock()
            return super().run(batch)

    stub_worker.install(HangingEngine, [__file__, str(folder)])
    stub: Callable[..., Tasks] = run_command.load_tasks  # type: ignore[attr-defined]

    def slow_load(settings: Settings, **warm_up: bool) -> Tasks:
        _while_there(folder / "loading")
        return stub(settings, **warm_up)

    run_command.load_tasks = slow_load  # type: ignore[attr-defined]
    if (folder / "hasty").exists():
        run_command.START_TIMEOUT_S = 4.0  # type: ignore[attr-defined]
    cli.main()


def _hold_the_lock() -> None:
    ctypes.PyDLL(None).sleep(3600)


def _while_there(gate: Path) -> None:
    while gate.exists():
        time.sleep(0.05)


if __name__ == "__main__":
    main(Path(sys.argv.pop(1)))
