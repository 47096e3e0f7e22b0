"""The list of all settings, read from the classes in `enricher.settings`: names, types, units, defaults, reasons.

Nothing is written by hand here but words for defaults that differ from machine to machine.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from enricher.settings import FromFile, Settings, variable_name

MASK = "***"

_SECRET = re.compile(
    r"password|passphrase|secret|token|credential|private|pem$|oauthbearer\.config|jaas", re.IGNORECASE
)
_DEFAULTS_IN_WORDS = {
    ("kafka", "instance"): "the host name",
    ("model", "cache_dir"): "`enricher` in the user's cache folder",
}
_UNITS = {"_s": "seconds", "_ms": "milliseconds", "_bytes": "bytes", "_tokens": "tokens", "_chars": "characters"}
_TYPES: Mapping[Any, str] = {str: "text", int: "whole number", float: "number", Path: "path", bool: "true or false"}
_BOUNDS = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}


@dataclass(frozen=True, slots=True)
class Row:
    """One setting. `kind` is its type with unit and bounds, `reason` its description."""

    group: str
    name: str
    variable: str
    kind: str
    default: str
    default_in_words: bool
    """True where the default depends on the machine, or is chosen at start."""
    reason: str

    def current(self, settings: Settings) -> str:
        """Its value now, without secrets."""
        return shown(getattr(getattr(settings, self.group), self.name))


def all_rows() -> Iterator[Row]:
    """Every setting, in the order of the classes."""
    for group, group_field in Settings.model_fields.items():
        settings_class = group_field.annotation
        assert settings_class is not None
        for name, field in settings_class.model_fields.items():
            yield Row(
                group=group,
                name=name,
                variable=variable_name(group, name),
                kind=_kind(name, field),
                default=_default(group, name, field),
                default_in_words=(group, name) in _DEFAULTS_IN_WORDS or field.default is None,
                reason=field.description or "",
            )


def group_reason(group: str) -> str:
    """What the settings of a group are about: the docstring of its class."""
    settings_class = Settings.model_fields[group].annotation
    assert settings_class is not None
    return settings_class.__doc__ or ""


def shown(value: object) -> str:
    """A value as one would write it into a variable, with secrets masked."""
    if value is None:
        return "automatic"
    if isinstance(value, Mapping):
        return json.dumps(masked(value))
    return json.dumps(value) if isinstance(value, tuple | list) else str(value)


def masked(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Client properties without what their names give away as a secret: passwords, tokens, private keys.

    Which file a secret stands in is no secret.
    """
    return {name: _masked(name, value) for name, value in properties.items()}


def _masked(name: str, value: object) -> object:
    if isinstance(value, FromFile):
        return value.model_dump(mode="json")
    return MASK if _SECRET.search(name) else value


def _kind(name: str, field: FieldInfo) -> str:
    unit = next((unit for suffix, unit in _UNITS.items() if name.endswith(suffix)), None)
    kind = _type(field.annotation)
    parts = [kind if unit is None else unit, *_bounds(field)]
    return ", ".join(parts)


def _type(annotation: Any) -> str:  # noqa: ANN401  any annotation there is
    if get_origin(annotation) is Literal:
        return " or ".join(f"`{choice}`" for choice in get_args(annotation))
    if get_origin(annotation) in {Union, UnionType}:
        return _type(next(part for part in get_args(annotation) if part is not NoneType))
    if get_origin(annotation) is tuple:
        return f"JSON list of {_type(get_args(annotation)[0])}s"
    if get_origin(annotation) is dict:
        return "JSON object"
    return _TYPES[annotation]


def _bounds(field: FieldInfo) -> list[str]:
    return [
        f"{words} {getattr(bound, attribute):,}"
        for bound in field.metadata
        for attribute, words in _BOUNDS.items()
        if getattr(bound, attribute, None) is not None
    ]


def _default(group: str, name: str, field: FieldInfo) -> str:
    if words := _DEFAULTS_IN_WORDS.get((group, name)):
        return words
    if field.default_factory is None:
        return shown(field.default)
    assert field.default_factory is dict, f"{group}.{name}: say in words where its default comes from"
    return "{}"
