"""Writes `tests/deploy/schemas/`: JSON schemas of the custom resources in the chart, from the cached CRDs."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from tools import ROOT
from tools.cluster.strict import schema_of
from tools.cluster.table import chosen, folder_of

if TYPE_CHECKING:
    from tools.cluster.strict import Schema

FOLDER = ROOT / "tests" / "deploy" / "schemas"
SOURCES = ("keda-crds", "prometheus-crds", "strimzi-crds")
# Kind and version of the custom resources that the chart renders.
KINDS = {
    "KafkaTopic": "v1",
    "KafkaUser": "v1",
    "PodMonitor": "v1",
    "PrometheusRule": "v1",
    "ScaledObject": "v1alpha1",
    "TriggerAuthentication": "v1alpha1",
}


@cache
def definitions() -> dict[str, Schema]:
    """The cached CustomResourceDefinitions by kind."""
    paths = [path for tool in chosen(SOURCES) for path in sorted(folder_of(tool).glob("*.yaml"))]
    documents = [yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader) for path in paths]
    return {document["spec"]["names"]["kind"]: document for document in documents}


def file_name(definition: Schema, version: str) -> str:
    """The file name that kubeconform expects: GROUP/KIND_VERSION.json."""
    return f"{definition['spec']['group']}/{definition['spec']['names']['kind'].lower()}_{version}.json"


def write(folder: Path = FOLDER) -> list[Path]:
    """Write the schemas of all kinds; returns their paths."""
    found = definitions()
    paths = []
    for kind, version in KINDS.items():
        path = folder / file_name(found[kind], version)
        path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(schema_of(found[kind], version), separators=(",", ":"), sort_keys=True)
        path.write_text(text + "\n", encoding="utf-8")
        paths.append(path)
    return paths
