"""Writes tests/deploy/schemas/: JSON schemas that reject what an API server would reject or drop, from its definitions.

    PYTHONPATH=scripts:tests python -m support.crd_schemas CRD.yaml ...

| in | kinds | made from (all under Apache-2.0) |
|---|---|---|
| `keda.sh` | ScaledObject, TriggerAuthentication | KEDA 2.21.0, `config/crd/bases` of its Go module |
| `monitoring.coreos.com` | PodMonitor, PrometheusRule | Prometheus Operator 0.85.0, `example/prometheus-operator-crd` |
| `kafka.strimzi.io` | KafkaTopic, KafkaUser | Strimzi 1.2.0, by its own generator; it serves only v1 |

A property that is not listed is refused, where an API server would drop it; `metadata` is open, `status` is refused.
Rules in CEL (`x-kubernetes-validations`) are left out: JSON Schema cannot express them, and nothing here checks them.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import yaml

from tools import ROOT

Schema = dict[str, Any]

FOLDER = ROOT / "tests" / "deploy" / "schemas"
# Kind and version of the custom resources that the chart renders.
KINDS = {
    "KafkaTopic": "v1",
    "KafkaUser": "v1",
    "PodMonitor": "v1",
    "PrometheusRule": "v1",
    "ScaledObject": "v1alpha1",
    "TriggerAuthentication": "v1alpha1",
}
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


def write(definition: Schema, folder: Path = FOLDER) -> Path | None:
    """Write the schema of a kind that the chart renders, named as kubeconform expects: GROUP/KIND_VERSION.json."""
    kind: str = definition["spec"]["names"]["kind"]
    version = KINDS.get(kind)
    if version is None:
        return None
    path = folder / str(definition["spec"]["group"]) / f"{kind.lower()}_{version}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(schema_of(definition, version), separators=(",", ":"), sort_keys=True)
    path.write_text(text + "\n", encoding="utf-8")
    return path


if __name__ == "__main__":
    for name in sys.argv[1:]:
        print(write(yaml.safe_load(Path(name).read_text(encoding="utf-8"))) or f"{name}: the chart has no such kind")
