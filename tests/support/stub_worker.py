"""`enricher` with a stub for the model: 0.1 s of processor time for a worker and 120 articles instead of 1.6.

    python tests/support/stub_worker.py run ...

The rest of the program is as shipped. The children of `--processes` have the stub too.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from enricher import cli
from enricher.worker.commands import enrich
from enricher.worker.commands import run as run_command
from enricher.worker.commands.run import Share
from enricher.worker.settings import Settings
from enricher.worker.wiring.loaded_tasks import Tasks
from tools.chaos.stub import StubEngine, stub_model
from tools.worker_parts import tasks_of

STUB_WORKER = str(Path(__file__))


def install(engine: Callable[[], StubEngine] = StubEngine, children: Sequence[str] = (STUB_WORKER,)) -> None:
    """Replace the model of the worker of this process. `children`: the program of its children."""
    as_shipped = run_command.child_command

    def child_command(share: Share, options: run_command.RunOptions) -> Sequence[str]:
        python, _, _, *arguments = as_shipped(share, options)
        return [python, *children, *arguments]

    def load_tasks(settings: Settings, **_warm_up: bool) -> Tasks:
        return tasks_of(settings, stub_model(engine()))

    for module, name, made in (
        (run_command, "load_tasks", load_tasks),
        (enrich, "load_tasks", load_tasks),
        (run_command, "child_command", child_command),
    ):
        assert hasattr(module, name), "the worker is started in another way now"
        setattr(module, name, made)
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)


if __name__ == "__main__":
    install()
    cli.main()
