"""The alerts and recording rules: promtool runs their unit tests, and each alert has a positive and a negative case."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.offenders import assert_none

from deploy.monitoring.generator.exported import instruments_by_series
from deploy.monitoring.generator.expressions import labels_of, metrics_of
from deploy.monitoring.generator.files import ALERTS, RECORDING, ROOT, RULE_TESTS
from enricher.worker.telemetry.prometheus import label_name
from tools.programs import found, missing

PROMTOOL = found("promtool")
TESTS = sorted(RULE_TESTS.glob("*.yaml"))
OF_THE_SCRAPE = {"namespace", "job", "instance", "le", "within"}
"""Labels that Prometheus adds, a histogram's bound, and the label that a recording rule adds."""
SEVERITIES = {"critical", "warning", "info"}

with_promtool = pytest.mark.skipif(PROMTOOL is None, reason=missing("promtool"))


def rules_of(path: Path) -> list[dict[str, Any]]:
    """All rules of a file."""
    return [rule for group in yaml.safe_load(path.read_text("utf-8"))["groups"] for rule in group["rules"]]


def cases() -> Iterator[dict[str, Any]]:
    """All cases of all test files."""
    for path in TESTS:
        yield from yaml.safe_load(path.read_text("utf-8"))["tests"]


def promtool(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run promtool."""
    assert PROMTOOL is not None
    return subprocess.run([PROMTOOL, *arguments], capture_output=True, text=True, check=False)


ALERT_RULES = rules_of(ALERTS)
RECORDED = [rule["record"] for rule in rules_of(RECORDING)]
NAMES = [rule["alert"] for rule in ALERT_RULES]


@with_promtool
def test_the_rules_pass_the_lint() -> None:
    """All of promtool's lints are errors."""
    outcome = promtool("check", "rules", "--lint=all", "--lint-fatal", ALERTS, RECORDING)
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr


@with_promtool
@pytest.mark.parametrize("path", TESTS, ids=lambda path: path.stem)
def test_series_make_alerts_fire_or_not(path: Path) -> None:
    """Each file has time series that must and must not make alerts fire."""
    outcome = promtool("test", "rules", path)
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr


@with_promtool
def test_an_alert_with_another_threshold_fails_its_tests(tmp_path: Path) -> None:
    """Negative control: the tests look at the rules."""
    for folder in (ALERTS.parent, RULE_TESTS):
        shutil.copytree(folder, tmp_path / folder.relative_to(ROOT))
    changed = ALERTS.read_text("utf-8").replace("> 0.95", "> 0.99")
    assert changed != ALERTS.read_text("utf-8")
    (tmp_path / ALERTS.relative_to(ROOT)).write_text(changed, "utf-8")
    outcome = promtool("test", "rules", tmp_path / RULE_TESTS.relative_to(ROOT) / "device.yaml")
    assert outcome.returncode != 0
    assert "EnricherGpuMemoryFull" in outcome.stdout + outcome.stderr


def test_every_alert_has_a_case_that_fires_and_one_that_never_does() -> None:
    """The second is a separate case, not the time before the alert fires."""
    fires, silent = set(), set()
    for case in cases():
        expected = [(each["alertname"], bool(each["exp_alerts"])) for each in case.get("alert_rule_test", ())]
        fires |= {name for name, fired in expected if fired}
        silent |= {name for name, _ in expected} - {name for name, fired in expected if fired}
    assert set(NAMES) == fires
    assert set(NAMES) == silent


def test_every_recorded_series_is_tested() -> None:
    """The test expects a value, not only its absence."""
    asked = [test for case in cases() for test in case.get("promql_expr_test", ()) if test["exp_samples"]]
    assert set(RECORDED) == {name for test in asked for name in metrics_of(test["expr"])}


def unknown_in(rule: dict[str, Any]) -> set[str]:
    """The metrics that a rule reads and nobody exports or records, and the labels that none of them has."""
    exported, recorded = instruments_by_series(), rules_of(RECORDING)
    used = metrics_of(rule["expr"])
    own = {label_name(name) for metric in used & exported.keys() for name in exported[metric].attributes}
    kept = {name for each in recorded if each["record"] in used for name in labels_of(each["expr"])}
    return (used - exported.keys() - set(RECORDED) - {"up"}) | (labels_of(rule["expr"]) - own - kept - OF_THE_SCRAPE)


def test_rules_read_only_what_there_is() -> None:
    """Metrics are exported or recorded, and labels are theirs; a recorded series has some of those that its rule reads."""
    rules = [*ALERT_RULES, *rules_of(RECORDING)]
    assert_none(f"{rule.get('alert') or rule['record']}: {name}" for rule in rules for name in unknown_in(rule))


def test_a_metric_or_label_that_nobody_has_is_found() -> None:
    """Negative control of the test above."""
    assert {"enricher_nothing", "nobody"} == unknown_in({"expr": "sum by (nobody) (enricher_nothing)"})


def test_alerts_say_what_a_person_needs() -> None:
    """Each has a severity, the job, a description and a link to the runbook."""
    for rule in ALERT_RULES:
        annotations = rule["annotations"]
        assert rule["labels"]["severity"] in SEVERITIES, rule
        assert annotations.keys() == {"summary", "description", "runbook_url"}, rule
        assert "$labels.job" in annotations["summary"], rule
        assert annotations["description"].endswith("."), rule
        assert annotations["runbook_url"] == f"runbook.md#{rule['alert'].lower()}"


def test_names_are_used_once() -> None:
    """An alert is found by its name; series recorded under one name differ by a label."""
    assert sorted(set(NAMES)) == sorted(NAMES)
    labelled = [(rule["record"], str(rule.get("labels"))) for rule in rules_of(RECORDING)]
    assert sorted(set(labelled)) == sorted(labelled)


def test_there_is_something_to_look_at() -> None:
    """Guards the tests above against a folder that moved."""
    assert "EnricherRecordsOld" in NAMES
    assert len(TESTS) > 3
