"""Settings to measure in turn with the present ones: `--against old`, or any settings of the scheduler and the loop."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic import ValidationError

from enricher.errors import SettingsError
from enricher.worker.settings import Settings

OLD = "batching.early_overhead=0,worker.publish_share=0"
"""The worker as it was before it took what waits for an idle thread at once, and published as soon as it pays."""
_NAMED = {"old": OLD}
_GROUPS = ("batching", "worker")


@dataclass(frozen=True, slots=True)
class Policy:
    """A name for tables, and values by group, as `Bench.settings_for` takes them."""

    name: str = "now"
    changes: Mapping[str, Mapping[str, object]] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str, settings: Settings) -> Policy:
        """From `old`, or `group.name=value` pairs with commas between. Raises SettingsError."""
        changes: dict[str, dict[str, object]] = {}
        for pair in _NAMED.get(text, text).split(","):
            group, name, value = _parts_of(pair)
            changes.setdefault(group, {})[name] = _value_of(settings, group, name, value)
        return cls(text if text in _NAMED else "other", changes)

    def __str__(self) -> str:
        pairs = [f"{group}.{name}={value}" for group, values in self.changes.items() for name, value in values.items()]
        return ", ".join(pairs) or "the settings as they are"


def _parts_of(pair: str) -> tuple[str, str, str]:
    path, _, value = pair.partition("=")
    group, _, name = path.strip().partition(".")
    if not (value and name and group in _GROUPS):
        raise SettingsError(f"'{pair}' is no setting of {' or '.join(_GROUPS)}: write group.name=value, or 'old'")
    return group, name, value.strip()


def _value_of(settings: Settings, group: str, name: str, value: str) -> object:
    """The value as the settings read it."""
    present = getattr(settings, group)
    try:
        return getattr(type(present).model_validate(present.model_dump() | {name: value}), name)
    except ValidationError as error:
        reasons = "; ".join(each["msg"] for each in error.errors())
        raise SettingsError(f"{group}.{name}={value}: {reasons}") from error
