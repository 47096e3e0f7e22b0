"""The only task of a worker without tasks in its settings, around a model that is loaded already or stands in for one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from enricher.worker.heads import NER, EntityHead
from enricher.worker.records import TaskCard
from enricher.worker.wiring.loaded_tasks import Tasks, load_tasks

if TYPE_CHECKING:
    from enricher.worker.records import ModelCard
    from enricher.worker.settings import Settings
    from enricher.worker.wiring.loaded_tasks import Model


def only_task(model: ModelCard) -> TaskCard:
    """The task that `load_tasks` derives from settings without tasks: entities by this model."""
    return TaskCard(NER, NER, model, named=False)


def tasks_of(settings: Settings, model: Model) -> Tasks:
    """Entities by this model, as `load_tasks` gives them."""
    task = only_task(model.card)
    return Tasks(model, (EntityHead.of(model.engine.labels, task),), settings)


def load_model(settings: Settings) -> Model:
    """The model of `model.source`, loaded and warmed up, whatever tasks the settings have. Raises ModelError."""
    return load_tasks(settings.model_copy(update={"tasks": {}})).model
