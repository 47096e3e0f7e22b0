"""`enricher` with a stub in the place of the model, for tests in which only the worker and its brokers matter.

    python tests/support/stub_worker.py run ...

All else is real. A run takes a fifth of the processor time: no model is loaded and warmed up.
"""

from __future__ import annotations

from pathlib import Path

from enricher import cli
from enricher.app.tasks import Tasks
from enricher.commands.run import command
from tools.chaos.stub import StubEngine, stub_model

STUB_WORKER = str(Path(__file__))


def main() -> None:
    """Replace the model, and run the command line."""
    command.load_tasks = lambda settings: Tasks.of(settings, stub_model(StubEngine()))  # type: ignore[attr-defined]
    cli.main()


if __name__ == "__main__":
    main()
