"""Builds values.schema.json: the worker's settings from their classes, all other values from rest.yaml."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml

from deploy.chart.generator.comments import described
from deploy.chart.generator.layout import REST, VALUES
from enricher.worker.settings import Settings, TaskSettings
from enricher.worker.settings.worker import NAME_PATTERN

if TYPE_CHECKING:
    from pydantic import BaseModel

Schema = dict[str, Any]

FOLLOWS: dict[str, dict[str, str]] = {
    "kafka": {"instance": "it is the pod's name"},
    "model": {
        "source": "it follows from `model.from` and `model.path`",
        "device": "it follows from `gpu.enabled`",
        "cache_dir": "it is a volume of the chart",
    },
    "registry": {"cache_dir": "it is in a volume of the chart"},
    "index": {
        "password": "it is in the Secret of `index.auth`",
        "password_file": "it follows from `index.auth`",
        "api_key": "it is in the Secret of `index.auth`",
        "api_key_file": "it follows from `index.auth`",
        "ca_file": "it follows from `index.ca`",
    },
    "health": {
        "enabled": "the probes need it",
        "port": "it follows from `health.port`",
        "probe_port": "it follows from `health.probePort`",
    },
}
"""Settings that cannot be set in `settings`, and why."""

# Client properties that contain a secret, which as a value would be readable in the pod and in the release.
SECRET_NAMES = r"password|passphrase|client\.secret|\.pem$|oauthbearer\.config|user\.info|auth\.token"  # noqa: S105  names


def groups() -> dict[str, type[BaseModel]]:
    """The classes of the settings, by group."""
    found = {name: info.annotation for name, info in Settings.model_fields.items()}
    return {name: group for name, group in found.items() if isinstance(group, type)}


def open_fields(group: str) -> dict[str, Schema]:
    """The fields of a group that may be set as values, each with its schema."""
    fields = groups()[group].model_json_schema()["properties"]
    return {name: part for name, part in fields.items() if name not in FOLLOWS.get(group, {})}


def defaults() -> dict[str, dict[str, Any]]:
    """The settings' defaults, with which templates compute, except those that depend on the machine."""
    return {
        name: {field: part["default"] for field, part in open_fields(name).items() if "default" in part}
        for name in groups()
    }


def values_schema() -> Schema:
    """The schema of all values."""
    rest = yaml.safe_load(REST.read_text("utf-8"))
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Values of the chart enricher; written by scripts/chart",
        **_strict({"properties": {**rest["properties"], "settings": {"properties": {}}}}),
        "$defs": _definitions(),
    }
    schema["properties"]["settings"] = _settings_schema()
    for each in described(VALUES.read_text("utf-8")):
        _describe(schema, each.path, each.description)
    return schema


def _settings_schema() -> Schema:
    """The schema of `settings`: only groups with a field that may be set."""
    made = {name: _strict({"properties": open_fields(name)}) for name in groups() if open_fields(name)}
    for group in ("kafka", "registry"):
        properties = made[group]["properties"]["properties"]
        properties["patternProperties"] = {SECRET_NAMES: {"$ref": "#/$defs/FromFile"}}
    task = TaskSettings.model_json_schema()
    made["tasks"] = {
        "type": "object",
        "patternProperties": {
            NAME_PATTERN: {**_strict({"properties": task["properties"]}), "required": task["required"]}
        },
        "additionalProperties": False,
    }
    return _strict({"properties": made})


def _definitions() -> Schema:
    """The definitions to which the settings' schemas refer."""
    found: Schema = {}
    for group in groups().values():
        found |= group.model_json_schema().get("$defs", {})
    return found


def _strict(schema: Schema) -> Schema:
    """Forbid properties that an object does not list, at every level."""
    if "properties" not in schema:
        return {**schema, "items": _strict(schema["items"])} if "items" in schema else schema
    properties = {name: _strict(part) for name, part in schema["properties"].items()}
    return {"type": "object", **schema, "properties": properties, "additionalProperties": False}


def _describe(schema: Schema, path: tuple[str, ...], description: str) -> None:
    """Add a description at a path, in a copy, because parts of rest.yaml are shared."""
    *above, last = path
    for name in above:
        schema = schema["properties"][name]
    schema["properties"][last] = {**schema["properties"][last], "description": description}
