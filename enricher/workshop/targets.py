"""The targets of `enricher model tune`: one model, or the passes of the settings' tasks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from enricher.errors import SettingsError
from enricher.worker.build.loaded_tasks import plan_tasks
from enricher.worker.inference.run.grouping import windows_of
from enricher.worker.inference.run.model import EMBEDDED, PreparedModel, open_model, prepare_pass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from enricher.worker.inference.checkpoint.folder import Checkpoint
    from enricher.worker.runtime.devices import Precision
    from enricher.worker.settings import Settings


@dataclass(frozen=True, slots=True)
class Target:
    """One pass. `name` is for people. `window_tokens`: the longest window, if its tasks or the settings name it."""

    name: str
    checkpoints: Sequence[Checkpoint]
    precision: Precision
    window_tokens: int | None

    def prepare(self, device: str, settings: Settings) -> PreparedModel:
        """Prepare the graph of the pass. Raises ModelError."""
        return prepare_pass(
            self.checkpoints,
            device=device,
            precision=self.precision,
            cache_dir=settings.model.cache_dir,
            gpu_wait=settings.model.gpu_wait,
        )


def targets(source: str | None, task: str | None, precision: Precision, settings: Settings) -> list[Target]:
    """The model in `source`; without one the pass with `task`, the passes of all tasks, or the built-in model.

    A precision other than `auto` replaces those of the settings. Raises ModelError, SettingsError.
    """
    if source is not None and task is not None:
        raise SettingsError("--task is for the tasks in the settings: leave out DIR, or --task")
    if task is not None and task not in settings.tasks:
        known = ", ".join(settings.tasks) or "there are none"
        raise SettingsError(f"--task {task}: there is no such task in the settings ({known})")
    if source is not None or not settings.tasks:
        return [Target(source or EMBEDDED, [open_model(source)], precision, None)]
    plan = plan_tasks(settings)
    found: list[Target] = []
    for group in plan.grouping.groups:
        names = [plan.names[index] for index in group]
        first = plan.tasks[names[0]]
        if task is None or task in names:
            chosen = first.precision if precision == "auto" else precision
            checkpoints = [plan.checkpoints[index] for index in group]
            windows = windows_of([plan.requests[index] for index in group])
            found.append(Target(", ".join(names), checkpoints, chosen, windows[0] if windows else None))
    return found
