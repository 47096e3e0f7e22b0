"""Every setting as a row of a list: its name, type, unit, bounds, default and reason, read from the classes.

Only the defaults that depend on the machine are written here by hand. Whatever may be a secret is masked before it is shown:
every value of a client's properties, and all but plain URLs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from enricher.worker.settings.articles import DeleteEventMapping
from enricher.worker.settings.group import FromFile
from enricher.worker.settings.sources import Settings, variable_name
from enricher.worker.settings.worker import TASKS, TaskSettings

_DEFAULTS_IN_WORDS = {
    ("kafka", "instance"): "the host name",
    ("articles", "deleted"): "none",
    ("model", "cache_dir"): "`enricher` in the user's cache folder",
    ("registry", "cache_dir"): "`schemas` in the worker's folder of the user's cache",
}
USUAL = {
    "kafka": "bootstrap_servers group_id input_topic input_topics output_topic dead_letter_topic instance properties",
    "model": "source device precision concurrency",
    "batching": "max_batch_tokens max_wait_ms",
    "articles": "format fields metadata transform deleted body_format",
    "catalogue": "path",
    "output": "article transform format",
    "registry": "url properties",
    "worker": "max_in_flight_articles max_articles_per_second publish_interval_ms",
    "dead_letters": "max_in_a_row max_ratio",
    "health": "host port",
    "index": "url name username password api_key ca_file",
    "log": "format",
    TASKS: "source languages threshold",
}
"""The settings that people set, by group; the others are for experts."""
REQUIRED = "required"
_UNITS = {"_s": "seconds", "_ms": "milliseconds", "_bytes": "bytes", "_tokens": "tokens", "_chars": "characters"}
_TYPES: Mapping[Any, str] = {
    str: "text",
    SecretStr: "text",
    int: "whole number",
    float: "number",
    Path: "path",
    bool: "true or false",
    DeleteEventMapping: "JSON object",
}
_BOUNDS = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}


@dataclass(frozen=True, slots=True)
class Row:
    """One setting; `kind` is its type with unit and bounds."""

    group: str
    name: str
    variable: str
    kind: str
    default: str
    default_in_words: bool
    """True if the default depends on the machine or is chosen at start."""
    reason: str
    expert: bool
    """Whether its default fits nearly everywhere."""


def all_rows() -> Sequence[Row]:
    """Every setting in the order of the classes; those for experts last."""
    rows = [
        Row(
            group=group,
            name=name,
            variable=f"tasks.NAME.{name}" if group == TASKS else variable_name(group, name),
            kind=_kind(name, field),
            default=_default(group, name, field),
            default_in_words=(group, name) in _DEFAULTS_IN_WORDS or field.default is None or field.is_required(),
            reason=field.description or "",
            expert=name not in USUAL[group].split(),
        )
        for group, group_field in Settings.model_fields.items()
        for name, field in _class_of(group, group_field).model_fields.items()
    ]
    return sorted(rows, key=lambda row: row.expert)


def group_reason(group: str) -> str:
    """The docstring of the group's class."""
    return _class_of(group, Settings.model_fields[group]).__doc__ or ""


def _class_of(group: str, field: FieldInfo) -> type[BaseModel]:
    """The class of a group's settings; for `tasks`, the class of one task."""
    if group == TASKS:
        return TaskSettings
    settings_class = field.annotation
    assert isinstance(settings_class, type)
    assert issubclass(settings_class, BaseModel)
    return settings_class


def heading(group: str) -> str:
    """The name of the table in TOML."""
    return "tasks.NAME" if group == TASKS else group


MASK = "***"
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,99}")
_PLAIN_URL = re.compile(r"\s*[A-Za-z][\w+.-]*://([\w.-]+|\[[0-9A-Fa-f:.]+\])(:\d{1,5})?(/[^?#@:]*)?\s*")
"""Scheme, host, port and path. Any other URL is masked: what stands where a password or a query may be, may be one."""


def _kind(name: str, field: FieldInfo) -> str:
    unit = next((unit for suffix, unit in _UNITS.items() if name.endswith(suffix)), None)
    return ", ".join([unit or _type(field.annotation), *_bounds(field)])


def _type(annotation: Any) -> str:  # noqa: ANN401  any annotation
    if get_origin(annotation) is Annotated:
        return _type(get_args(annotation)[0])
    if get_origin(annotation) is Literal:
        return " or ".join(f"`{choice}`" for choice in get_args(annotation))
    if get_origin(annotation) in {Union, UnionType}:
        return " or ".join(_type(part) for part in get_args(annotation) if part is not NoneType)
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
    if field.is_required():
        return REQUIRED
    if field.default_factory is None:
        return masked_text(name, field.default)
    assert field.default_factory is dict, f"{group}.{name}: describe its default in _DEFAULTS_IN_WORDS"
    return "{}"


def masked_text(name: str, value: object) -> str:
    """The value of a setting as in an environment variable, with secrets masked."""
    if value is None:
        return "automatic"
    if isinstance(value, Mapping):
        return json.dumps(shown_properties(value) if name == "properties" else value)
    if isinstance(value, DeleteEventMapping):
        return value.model_dump_json(exclude_none=True)
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, tuple | list):
        return json.dumps(value)
    text = shown_text(str(value))
    # A line break would break the list, and the table of the page.
    return text if text.isprintable() else json.dumps(text)


def shown_text(text: str) -> str:
    """The text; masked if it has a URL that is more than an address, or is like `user:password@host`."""
    if "://" in text:
        return text if all(map(_PLAIN_URL.fullmatch, text.split(","))) else MASK
    before, at, _ = text.rpartition("@")
    return MASK if at and ":" in before else text


def shown_properties(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Properties of a client, with the names of files that values are read from; a name that cannot be one is masked too."""
    return {
        name if _NAME.fullmatch(name) else MASK: value.model_dump(mode="json") if isinstance(value, FromFile) else MASK
        for name, value in properties.items()
    }
