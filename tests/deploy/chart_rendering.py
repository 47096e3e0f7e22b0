"""Renders the chart with Helm, and finds objects in the output."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import jsonschema
import pytest
import yaml

from deploy.chart.generator.layout import CHART
from enricher.worker.settings import Settings, load_settings
from tools.programs import found, missing

Object = dict[str, Any]
Values = Mapping[str, Any]

HELM = found("helm")
needs_helm = pytest.mark.skipif(HELM is None, reason=missing("helm"))

SCHEMAS = Path(__file__).parent / "schemas"
CI_FILES = sorted((CHART / "ci").glob("*-values.yaml"))
RELEASE, NAMESPACE, FULL_NAME = "news", "ner", "news-enricher"

_METADATA = yaml.safe_load((CHART / "Chart.yaml").read_text("utf-8"))
OLDEST: str = _METADATA["annotations"]["enricher/oldest-kubernetes"]
NEWEST: str = _METADATA["annotations"]["enricher/newest-kubernetes"]
APP_VERSION: str = _METADATA["appVersion"]

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The parser in C takes a seventh of the time, where it was built."""

_WITH_PODS = ("StatefulSet", "Deployment", "Job")


def helm(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run Helm, without a cluster."""
    # It ends before its memory matters, and collecting garbage is a quarter of its processor time.
    environment = {**os.environ, "GOGC": "off"}
    return subprocess.run(
        [str(HELM), *arguments], input=stdin, capture_output=True, text=True, check=False, env=environment
    )


@dataclass(frozen=True, slots=True)
class Rendered:
    """All objects of one release."""

    objects: tuple[Object, ...]

    def all(self, kind: str) -> list[Object]:
        """All objects of a kind."""
        return [each for each in self.objects if each["kind"] == kind]

    def one(self, kind: str, name: str = "") -> Object:
        """Find the object of a kind, and of a name where there are several."""
        (only,) = (each for each in self.all(kind) if name in ("", each["metadata"]["name"]))
        return only

    @property
    def templates(self) -> list[Object]:
        """The templates of all pods of the release."""
        return [each["spec"]["template"] for kind in _WITH_PODS for each in self.all(kind)]

    @property
    def pods(self) -> list[Object]:
        """The specs of all pods of the release."""
        return [each["spec"] for each in self.templates]

    @property
    def pod(self) -> Object:
        """The spec of a worker's pod."""
        spec: Object = self.one("StatefulSet")["spec"]["template"]["spec"]
        return spec

    @property
    def worker(self) -> Object:
        """The container of the worker."""
        (container,) = self.pod["containers"]
        assert isinstance(container, dict)
        return container


def fields_of(rendered: Rendered) -> list[tuple[str, str]]:
    """Every field of every object, by a path such as `Service news-enricher: spec.ports[health].port`, with its JSON.

    Items of a list are called by their name, where they have one. Files of the chart that an object holds are only named.
    """
    found: list[tuple[str, str]] = []
    for each in rendered.objects:
        title = f"{each['kind']} {each['metadata']['name']}: "
        body = {name: value for name, value in each.items() if name != "kind"}
        found += [(title + path, value) for path, value in _fields(_without_files(body))]
    return found


def _fields(value: object, path: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, dict) and value:
        for name, each in value.items():
            yield from _fields(each, f"{path}.{name}" if path else name)
    elif isinstance(value, list) and value:
        for index, each in enumerate(value):
            named = isinstance(each, dict) and len(each) > 1 and "name" in each
            rest = {name: inner for name, inner in each.items() if name != "name"} if named else each
            yield from _fields(rest, f"{path}[{each['name'] if named else index}]")
    else:
        yield path, json.dumps(value, ensure_ascii=False)


def _without_files(body: Object) -> Object:
    for name in ("alerts.yaml", "recording.yaml"):
        if body.get("spec") == values_of(CHART / "files" / name):
            return {**body, "spec": f"(files/{name})"}
    dashboard = (CHART / "files" / "dashboard.json").read_text("utf-8")
    data = {key: "(files/dashboard.json)" if text == dashboard else text for key, text in body.get("data", {}).items()}
    return {**body, "data": data} if data else body


def containers_of(pod: Object) -> Iterator[Object]:
    """All containers of a pod, including init containers."""
    yield from pod.get("initContainers", ())
    yield from pod["containers"]


def environment_of(container: Object) -> dict[str, str]:
    """The variables that a container gets as plain text."""
    return {entry["name"]: entry["value"] for entry in container["env"] if "value" in entry}


def settings_of(container: Object) -> Settings:
    """The settings of a container's program. Raises SettingsError for what it would refuse."""
    with mock.patch.dict(os.environ, environment_of(container)):
        return load_settings()


def values_of(path: Path) -> Values:
    """A file of values."""
    values: Values = yaml.load(path.read_text("utf-8"), _LOADER)
    return values


def objects_in(documents: str) -> tuple[Object, ...]:
    """The documents of a text in YAML that are not empty."""
    return tuple(each for each in yaml.load_all(documents, _LOADER) if each)


def render(values: Values | None = None, *, kubernetes: str = NEWEST) -> Rendered:
    """Render with these values over the chart's defaults."""
    answer = _template(json.dumps(values or {}), kubernetes)
    assert answer.returncode == 0, answer.stderr
    return Rendered(objects_in(answer.stdout))


def refusal(values: Values) -> str:
    """Helm's message when it refuses these values."""
    answer = _template(json.dumps(values), NEWEST)
    assert answer.returncode != 0, "it was rendered"
    return answer.stderr


@cache
def _template(values: str, kubernetes: str) -> subprocess.CompletedProcess[str]:
    arguments = ("template", RELEASE, str(CHART), "--namespace", NAMESPACE, "--kube-version", kubernetes)
    return helm(*arguments, "--values", "-", stdin=values)


def custom_schema(resource: Object) -> Object:
    """The operator's own schema of a custom resource."""
    group, version = resource["apiVersion"].split("/")
    path = SCHEMAS / group / f"{resource['kind'].lower()}_{version}.json"
    schema: Object = json.loads(path.read_text("utf-8"))
    return schema


def check_custom(resource: Object) -> None:
    """Raise jsonschema's ValidationError for a resource that its operator would refuse."""
    jsonschema.Draft202012Validator(custom_schema(resource)).validate(resource)
