"""`enricher` in a separate process, whose model waits while a file exists.

    python tests/health/hanging.py FOLDER run ...    # FOLDER/loading: it does not load; FOLDER/running: it does not run
                                                     # FOLDER/holding: a run never gives the interpreter's lock back

Everything else is unchanged: a hung device looks like a run that does not return.
"""

from __future__ import annotations

import ctypes
import sys
import time
from pathlib import Path
from typing import Any

from enricher import cli
from enricher.commands.run import command
from enricher.inference.run.engine import OnnxEngine


def main(folder: Path) -> None:
    """Install the gates, and run the command line."""
    load, run = command.load_tasks, OnnxEngine.run  # type: ignore[attr-defined]

    def slow_load(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401  whatever it takes and gives
        _while_there(folder / "loading")
        return load(*arguments, **named)

    def slow_run(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401  as above
        _while_there(folder / "running")
        if (folder / "holding").exists():
            ctypes.PyDLL(None).sleep(3600)
        return run(*arguments, **named)

    command.load_tasks = slow_load  # type: ignore[attr-defined]
    OnnxEngine.run = slow_run  # type: ignore[method-assign]
    cli.main()


def _while_there(gate: Path) -> None:
    while gate.exists():
        time.sleep(0.05)


if __name__ == "__main__":
    main(Path(sys.argv.pop(1)))
