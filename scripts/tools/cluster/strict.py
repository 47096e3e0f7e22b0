"""Converts a custom resource's OpenAPI schema to a JSON schema that rejects what the API server rejects or drops.

Pure. Rules in CEL (`x-kubernetes-validations`) are left out: JSON Schema cannot express them; the API server checks them.
"""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]

# Copied unchanged. `format` is not among them: Kubernetes' formats (int64) are not JSON Schema's.
_KEPT = (
    *("type", "enum", "pattern", "required", "maximum", "minimum", "multipleOf"),
    *("maxItems", "minItems", "uniqueItems", "maxLength", "minLength", "maxProperties", "minProperties"),
)
_COMBINED = ("allOf", "anyOf", "oneOf")
_NOT_OURS = "status"  # controllers write it


def schema_of(definition: Schema, version: str) -> Schema:
    """The schema of one version of a CustomResourceDefinition."""
    spec = definition["spec"]
    found = next(entry for entry in spec["versions"] if entry["name"] == version)
    root = strict(found["schema"]["openAPIV3Schema"])
    properties = {name: part for name, part in root["properties"].items() if name != _NOT_OURS}
    properties["apiVersion"] = {"const": f"{spec['group']}/{version}"}
    properties["kind"] = {"const": spec["names"]["kind"]}
    properties["metadata"] = {"type": "object", "required": ["name"]}  # its own schema is Kubernetes'
    required = sorted({"apiVersion", "kind", "metadata", *root.get("required", ())} - {_NOT_OURS})
    return {**root, "properties": properties, "required": required}


def strict(schema: Schema) -> Schema:
    """Convert a structural schema: an object that lists properties allows no others."""
    made = _plain(schema)
    if "properties" in schema:
        made["properties"] = {name: strict(part) for name, part in schema["properties"].items()}
    if "items" in schema:
        made["items"] = strict(schema["items"])
    if schema.get("type") == "object" and not schema.get("x-kubernetes-preserve-unknown-fields"):
        values = schema.get("additionalProperties", False)
        made["additionalProperties"] = strict(values) if isinstance(values, dict) else values
    if schema.get("x-kubernetes-int-or-string"):
        made["type"] = ["integer", "string"]
    if schema.get("nullable"):
        made["type"] = [*([made["type"]] if isinstance(made["type"], str) else made["type"]), "null"]
    return made


def _plain(schema: Schema) -> Schema:
    """Keep what both languages share; parts of combinations only narrow, so they list properties without closing."""
    made = {name: schema[name] for name in _KEPT if name in schema}
    if "(?i)" in made.get("pattern", ""):  # Go allows it anywhere, Python and others only in front
        made["pattern"] = "(?i)" + made["pattern"].replace("(?i)", "")
    for bound, name in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if schema.get(name) is True:  # OpenAPI 3.0 has it as a flag of the bound
            made[name] = made.pop(bound)
    for name in _COMBINED:
        if name in schema:
            made[name] = [_narrowing(part) for part in schema[name]]
    if "not" in schema:
        made["not"] = _narrowing(schema["not"])
    return made


def _narrowing(schema: Schema) -> Schema:
    made = _plain(schema)
    if "properties" in schema:
        made["properties"] = {name: _narrowing(part) for name, part in schema["properties"].items()}
    if "items" in schema:
        made["items"] = _narrowing(schema["items"])
    return made
