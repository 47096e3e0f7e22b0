"""Says which setting an unknown name probably means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches

from pydantic.fields import FieldInfo

from enricher.worker.settings.files import PREFIX, variable_name

Groups = Mapping[str, FieldInfo]
"""The groups of the settings by name."""

_LEAST_ALIKE = 0.8
"""The least ratio of difflib that counts. At its default of 0.6, `kafka.sasl_password` would mean `kafka.start`."""


def setting_names(groups: Groups) -> Sequence[str]:
    """Every setting as `group.field`, without those of tasks, which are all in one variable."""
    fields = {group: getattr(info.annotation, "model_fields", ()) for group, info in groups.items()}
    return [f"{group}.{field}" for group, names in fields.items() for field in names]


def variable_names(groups: Groups) -> Sequence[str]:
    """The variable of each of `setting_names`."""
    return [variable_name(*name.split(".")) for name in setting_names(groups)]


def did_you_mean(name: str, known: Sequence[str]) -> str:
    """`; did you mean X?`, where X has the same name in another group, or almost the same; nothing if none has."""
    wanted, by_text = _plain(name), {_plain(each): each for each in known}
    elsewhere = [text for text in by_text if text.rpartition(".")[2] == wanted.rpartition(".")[2]]
    found = elsewhere if len(elsewhere) == 1 else get_close_matches(wanted, by_text, n=1, cutoff=_LEAST_ALIKE)
    return f"; did you mean {by_text[found[0]]}?" if found else ""


def _plain(name: str) -> str:
    """A variable as `group.field`, like a name of the TOML file."""
    return name.lower().removeprefix(PREFIX.lower()).replace("__", ".")
