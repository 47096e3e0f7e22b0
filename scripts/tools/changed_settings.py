"""Settings of the worker with other values, for programs that run its parts."""

from __future__ import annotations

from collections.abc import Mapping

from enricher.worker.settings import Settings


def change(settings: Settings, **groups: Mapping[str, object]) -> Settings:
    """The settings with other values by group, such as `worker={"publish_share": 0}`. Nothing is checked."""
    changed = {name: getattr(settings, name).model_copy(update=dict(values)) for name, values in groups.items()}
    return settings.model_copy(update=changed)
