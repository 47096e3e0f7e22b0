"""The chart renders for each option, and every object is what Kubernetes and the operators accept, strictly."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from functools import cache
from pathlib import Path

import jsonschema
import kubernetes_validate  # type: ignore[import-untyped]
import pytest
from deploy.chart_rendering import (
    CI_FILES,
    NAMESPACE,
    NEWEST,
    OLDEST,
    Object,
    check_custom,
    helm,
    needs_helm,
    objects_in,
    render,
    values_of,
)
from kubernetes_validate import utils
from typer.testing import CliRunner

from deploy.chart.generator.layout import CHART
from enricher.cli import app

pytestmark = [needs_helm, pytest.mark.slow]

CUSTOM = {"ScaledObject", "TriggerAuthentication", "PodMonitor", "PrometheusRule", "KafkaTopic", "KafkaUser"}
READ_ONCE = cache(utils.schema_contents)
NATIVE = {
    *("StatefulSet", "Deployment", "Job", "Service", "ServiceAccount", "ConfigMap"),
    *("PodDisruptionBudget", "NetworkPolicy", "HorizontalPodAutoscaler"),
}


@cache
def everything(kubernetes: str) -> tuple[Object, ...]:
    """The objects of all files of values, without duplicates."""
    objects = (each for path in CI_FILES for each in render(values_of(path), kubernetes=kubernetes).objects)
    return tuple({json.dumps(each, sort_keys=True): each for each in objects}.values())


@pytest.fixture(autouse=True)
def _schemas_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library reads megabytes of definitions for each object."""
    monkeypatch.setattr(utils, "schema_contents", READ_ONCE)


@pytest.mark.parametrize("kubernetes", [OLDEST, NEWEST])
def test_kubernetes_own_objects_are_valid(kubernetes: str) -> None:
    """They are validated strictly for the oldest and the newest version; the count guards against checking nothing."""
    checked: Counter[str] = Counter()
    for each in everything(kubernetes):
        if each["kind"] not in CUSTOM:
            assert kubernetes_validate.validate(each, kubernetes, strict=True) == kubernetes
            checked[each["kind"]] += 1
    assert set(checked) == NATIVE
    assert checked["StatefulSet"] >= len(CI_FILES) - 2


def test_custom_resources_are_valid() -> None:
    """Against KEDA's, the Prometheus Operator's and Strimzi's own schemas."""
    checked: Counter[str] = Counter()
    for each in everything(NEWEST):
        if each["kind"] in CUSTOM:
            check_custom(each)
            checked[each["kind"]] += 1
    assert set(checked) == CUSTOM
    assert checked["KafkaTopic"] >= 3


def test_the_checks_catch_what_they_are_for() -> None:
    """Negative controls: both refuse a misspelt field, and the schema of every kind does at its top and inside."""
    workload = json.loads(json.dumps(render(values_of(CHART / "ci" / "production-values.yaml")).one("StatefulSet")))
    workload["spec"]["template"]["spec"]["terminationGracePeriodSecond"] = 1
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(workload, NEWEST, strict=True)
    by_kind: dict[str, Object] = {each["kind"]: each for each in everything(NEWEST) if each["kind"] in CUSTOM}
    assert by_kind.keys() == CUSTOM
    for each in by_kind.values():
        changes: list[Object] = [{"sepc": {}}, {"spec": {**each["spec"], "misspelt": 1}}, {"status": {}}]
        for change in changes:
            with pytest.raises(jsonschema.ValidationError):
                check_custom({**each, **change})


def test_the_versions_are_those_that_the_chart_claims() -> None:
    """The newest is the newest that can be validated; a version before the oldest is refused."""
    assert utils.major_minor(utils.all_versions()[-1]) == NEWEST
    answer = helm("template", "news", str(CHART), "--kube-version", "1.29")
    assert "is incompatible with Kubernetes v1.29" in answer.stderr
    assert f"validated against {OLDEST} and {NEWEST}" in (CHART / "README.md").read_text("utf-8").replace("\n", " ")


def test_helm_finds_nothing_to_say() -> None:
    """Lint, where warnings count as errors, with each file of values."""
    files = [argument for path in CI_FILES for argument in ("--values", str(path))]
    alone = helm("lint", "--strict", "--quiet", str(CHART), "--kube-version", OLDEST)
    together = helm("lint", "--strict", "--quiet", str(CHART), "--kube-version", NEWEST, *files[:4])
    assert [alone.returncode, together.returncode] == [0, 0], alone.stdout + together.stdout


def notes(folder: Path, values: str = "{}") -> str:
    """Helm prints the notes only with a cluster, so a copy of the chart renders them as an object."""
    copy = folder / "chart"
    shutil.copytree(CHART, copy)
    (copy / "templates" / "NOTES.txt").rename(copy / "files" / "notes.txt")
    template = 'kind: Notes\ndata: {{ tpl (.Files.Get "files/notes.txt") . | toJson }}\n'
    (copy / "templates" / "notes.yaml").write_text(template, "utf-8")
    answer = helm("template", "news", str(copy), "--namespace", NAMESPACE, "--values", "-", stdin=values)
    (printed,) = (each for each in objects_in(answer.stdout) if each["kind"] == "Notes")
    return str(printed["data"])


def test_the_notes_say_how_to_see_it_work(tmp_path: Path) -> None:
    """The notes contain only existing commands, and the names of this release."""
    said = notes(tmp_path)
    assert "port-forward news-enricher-0 8080:8080" in said
    assert "from 'articles' to 'entities'" in said
    commands = set(re.findall(r"-- enricher (\w+)", said))
    assert {"doctor", "lag", "publish", "tail"} == commands
    for command in commands:
        assert CliRunner().invoke(app, [command, "--help"]).exit_code == 0
