"""A command of `enricher` as it ships, except for the model: `python -m tools.chaos.command replay ...`."""

from __future__ import annotations

import faulthandler

from enricher import cli
from enricher.worker.commands import run as run_command
from enricher.worker.settings import Settings
from enricher.worker.wiring.loaded_tasks import Tasks
from tools.chaos.stub import RatingEngine, two_tasks


def _load_tasks(settings: Settings, **_warm_up: bool) -> Tasks:
    return two_tasks(settings, RatingEngine())


if __name__ == "__main__":
    assert hasattr(run_command, "load_tasks"), "the worker is started in another way now"
    run_command.load_tasks = _load_tasks
    faulthandler.enable()
    cli.main()
