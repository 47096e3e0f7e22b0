"""The monitoring: alerts and recording rules, the dashboard and the runbook. They name only what there is.

promtool runs the rules' unit tests; each alert has a positive and a negative case, one panel or more, and one entry. It
also runs the query of deploy/scaling.md on invented workers.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.offenders import assert_none

from deploy.monitoring.generator.exported import EVERY_INSTRUMENT, instruments_by_series, series_of
from deploy.monitoring.generator.expressions import labels_of, metrics_of
from deploy.monitoring.generator.files import ALERTS, DASHBOARD, RECORDING, ROOT, RULE_TESTS, RUNBOOK
from deploy.monitoring.generator.grafana import as_text, dashboard
from deploy.monitoring.generator.layout import ROWS
from enricher.cli import EXIT_CODES
from enricher.worker.settings.listing import all_rows
from enricher.worker.telemetry.prometheus import label_name
from tools.programs import found, missing

PROMTOOL = found("promtool")
TESTS = sorted(RULE_TESTS.glob("*.yaml"))
OF_THE_SCRAPE = {"namespace", "job", "instance", "le", "within"}
"""Labels that Prometheus adds, a histogram's bound, and the label that a recording rule adds."""
SEVERITIES = {"critical", "warning", "info"}
MODEL = dashboard(ROWS)
PANELS = [panel for row in ROWS for panel in row.panels]
EXPRESSIONS = [query.expression for panel in PANELS for query in panel.queries]
TEXT = RUNBOOK.read_text("utf-8")
RUNNING = (RUNBOOK.parents[1] / "running.md").read_text("utf-8")
ENTRIES = {
    section.split("\n", 1)[0]: section.split("\n", 1)[1] for section in re.split(r"^### ", TEXT, flags=re.MULTILINE)[1:]
}
PARTS = ["**Means.**", "**Look at.**", "**Do.**"]
MAX_WORDS = 60
OF_OTHER_COMMANDS = {8, 9, 10, 11, 13, 130}
"""Exit codes that no worker has."""


def with_promtool(test: Callable[..., None]) -> Callable[..., None]:
    """Marks a test of which promtool is most."""
    marked: Callable[..., None] = pytest.mark.slow(
        pytest.mark.skipif(PROMTOOL is None, reason=missing("promtool"))(test)
    )
    return marked


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


ALERT_RULES, RECORDING_RULES = rules_of(ALERTS), rules_of(RECORDING)
RULES = [*ALERT_RULES, *RECORDING_RULES]
RECORDED = {rule["record"] for rule in RECORDING_RULES}
NAMES = [rule["alert"] for rule in ALERT_RULES]


@with_promtool
def test_the_rules_pass_the_lint() -> None:
    """All of promtool's lints are errors."""
    outcome = promtool("check", "rules", "--lint=all", "--lint-fatal", ALERTS, RECORDING)
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr


@with_promtool
@pytest.mark.parametrize("path", TESTS, ids=lambda path: path.stem)
def test_series_make_alerts_fire_or_not(path: Path, tmp_path: Path) -> None:
    """Each file has time series that must and must not make alerts fire.

    Only the rules that it asks for are evaluated, which takes a fifth of the time.
    """
    test = yaml.safe_load(path.read_text("utf-8"))
    rules = rules_behind(names_in(test))
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(rules), "utf-8")
    there_are = {group["name"] for group in rules["groups"]}
    order = [name for name in test.get("group_eval_order", ()) if name in there_are]
    changed = test | {"rule_files": ["rules.yaml"], "group_eval_order": order}
    (tmp_path / "test.yaml").write_text(yaml.safe_dump(changed), "utf-8")
    outcome = promtool("test", "rules", tmp_path / "test.yaml")
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr


def names_in(test: dict[str, Any]) -> set[str]:
    """The alerts and metrics that a file of unit tests asks for."""
    alerts = {each["alertname"] for case in test["tests"] for each in case.get("alert_rule_test", ())}
    expressions = [each["expr"] for case in test["tests"] for each in case.get("promql_expr_test", ())]
    return alerts.union(*map(metrics_of, expressions))


def rules_behind(names: set[str]) -> dict[str, Any]:
    """The groups with the rules of these names, and of the recorded series that those read."""

    def is_asked_for(rule: dict[str, Any]) -> bool:
        return rule.get("alert", rule.get("record")) in names

    while more := {name for rule in filter(is_asked_for, RULES) for name in metrics_of(rule["expr"])} - names:
        names = names | more
    files = [yaml.safe_load(path.read_text("utf-8")) for path in (RECORDING, ALERTS)]
    groups = [group | {"rules": [*filter(is_asked_for, group["rules"])]} for file in files for group in file["groups"]]
    return {"groups": [group for group in groups if group["rules"]]}


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
    assert RECORDED == {name for test in asked for name in metrics_of(test["expr"])}


def unknown_in(expression: str) -> set[str]:
    """The metrics that an expression reads and nobody exports or records, and the labels that none of them has."""
    exported, used = instruments_by_series(), metrics_of(expression)
    own = {label_name(name) for metric in used & exported.keys() for name in exported[metric].attributes}
    kept = {name for each in RECORDING_RULES if each["record"] in used for name in labels_of(each["expr"])}
    return (used - exported.keys() - RECORDED - {"up"}) | (labels_of(expression) - own - kept - OF_THE_SCRAPE)


@pytest.mark.slow
def test_rules_and_queries_read_only_what_there_is() -> None:
    """Metrics are exported or recorded, and labels are theirs; a recorded series has some of those that its rule reads."""
    rules = [rule["expr"] for rule in RULES]
    assert_none(f"{each}: {name}" for each in (*rules, *EXPRESSIONS) for name in unknown_in(each))
    assert_none(each for each in EXPRESSIONS if not metrics_of(each))
    assert {"enricher_nothing", "nobody"} == unknown_in("sum by (nobody) (enricher_nothing)"), "the negative control"


def test_alerts_say_what_a_person_needs() -> None:
    """Each has a severity, the job, a description and a link to the runbook."""
    for rule in ALERT_RULES:
        annotations = rule["annotations"]
        assert rule["labels"]["severity"] in SEVERITIES, rule
        assert annotations.keys() == {"summary", "description", "runbook_url"}, rule
        assert "$labels.job" in annotations["summary"], rule
        assert annotations["description"].endswith("."), rule
        assert annotations["runbook_url"] == f"runbook.md#{rule['alert'].lower()}"


def test_the_file_is_what_the_script_writes() -> None:
    """It was not edited by hand, and `scripts/dashboard` was run after the last change."""
    assert as_text(MODEL) == DASHBOARD.read_text("utf-8")


def test_every_instrument_is_in_a_panel() -> None:
    """No instrument is left out."""
    shown = {name for expression in EXPRESSIONS for name in metrics_of(expression)}
    assert_none(each.name for each in EVERY_INSTRUMENT if shown.isdisjoint(series_of(each)))


def test_queries_use_the_variables_that_there_are() -> None:
    """Data source, namespace, group and worker can be selected, and nothing else is assumed."""
    names = {variable["name"] for variable in MODEL["templating"]["list"]}
    used = set(re.findall(r"\$\{?([a-z_]+)", json.dumps(MODEL["panels"])))
    assert {"datasource", "namespace", "job", "instance"} == names
    assert used - {"__rate_interval"} == names
    assert all(panel["datasource"]["uid"] == "${datasource}" for panel in MODEL["panels"] if panel["type"] != "row")


def test_there_is_one_entry_for_every_alert_and_none_for_others() -> None:
    """They are in the same order."""
    assert NAMES == list(ENTRIES)
    assert "EnricherRecordsOld" in NAMES


def test_an_entry_says_what_to_do() -> None:
    """Before that what it means, if that is more than the alert's own text, and what to look at; none of them is empty."""
    for name, entry in ENTRIES.items():
        parts = re.findall(r"^(\*\*[A-Z][a-z ]+\.\*\*) \S", entry, flags=re.MULTILINE)
        assert [part for part in PARTS if part in parts or part == PARTS[-1]] == parts, name


def test_an_entry_is_short() -> None:
    """Whoever is on call reads it at night; what is longer belongs on the page that it links."""
    words = {name: len(entry.partition("\n## ")[0].split()) for name, entry in ENTRIES.items()}
    assert {} == {name: count for name, count in words.items() if count > MAX_WORDS} != words


@pytest.mark.parametrize(
    ("pattern", "there_are"),
    [
        (r"`((?:job:|enricher_|messaging_|process_|hw_)[\w:]+)`", instruments_by_series().keys() | RECORDED),
        (r'"([^"]+)"', {panel.title for panel in PANELS}),
        (r"`(ENRICHER_[A-Z_]+)`", {row.variable for row in all_rows()}),
    ],
    ids=["metrics", "panels, which stand in quotation marks", "settings"],
)
def test_what_the_runbook_names_exists(pattern: str, there_are: set[str]) -> None:
    """A name that no longer exists would mislead whoever is on call."""
    named = set(re.findall(pattern, " ".join(TEXT.split())))
    assert named
    assert set() == named - there_are


def test_every_exit_code_of_a_worker_has_its_line() -> None:
    """A worker that keeps restarting gives the reason in its exit code; the table of codes says what to do."""
    told = {int(code) for code in re.findall(r"^\| (\d+) \| .+ \| \S.* \|$", RUNNING, flags=re.MULTILINE)}
    assert EXIT_CODES.keys() - {0} - OF_OTHER_COMMANDS == told


def query() -> str:
    """The query as printed on the page."""
    page = (ROOT / "deploy" / "scaling.md").read_text("utf-8")
    printed = re.search(r"```promql\n(ceil\(.*?)```", page, re.DOTALL)
    assert printed
    return printed[1]


def workers(count: int, *, share: float, age_s: float, partitions: int) -> list[dict[str, str]]:
    """Series of workers with two threads each, busy for `share` of their time."""
    concurrency, every_s = 2, 15
    series = {
        "enricher_engine_busy_time_seconds_total": f"0+{share * concurrency * every_s}x40",
        "enricher_engine_concurrency": f"{concurrency}x40",
        "enricher_oldest_age_seconds": f"{age_s}x40",
        "enricher_partitions": f"{partitions / count}x40",
    }
    return [
        {"series": f'{name}{{job="enricher", pod="enricher-{number}"}}', "values": values}
        for name, values in series.items()
        for number in range(count)
    ]


SCALES = [
    (2, 0.5, 0.3, 24, 2),
    (4, 0.3, 0.3, 24, 2),
    (2, 0.99, 5, 24, 3),
    (2, 1.0, 90, 24, 4),
    (4, 1.0, 3600, 24, 12),
    (8, 1.0, 0.3, 24, 12),
    (20, 0.6, 5, 24, 24),
    (2, 0.0, 0.3, 24, 0),
    (4, 1.0, 3600, 6, 6),
]
"""Workers, the share of their time in which they are busy, the oldest record's age, partitions; and the workers wanted."""


@with_promtool
def test_the_query_asks_for_the_workers_that_it_takes(tmp_path: Path) -> None:
    """Fewer if they are idle, more if they are busy or late; each has as many partitions, and none is without one."""
    rules = {"groups": [{"name": "scaling", "rules": [{"record": "wanted_workers", "expr": query()}]}]}
    tests = []
    for count, share, age_s, partitions, wanted in SCALES:
        series = workers(count, share=share, age_s=age_s, partitions=partitions)
        samples = [{"labels": "wanted_workers", "value": wanted}]
        expected = {"expr": "wanted_workers", "eval_time": "5m", "exp_samples": samples}
        tests.append({"interval": "15s", "input_series": series, "promql_expr_test": [expected]})
    test = {"rule_files": ["rules.yaml"], "evaluation_interval": "15s", "tests": tests}
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(rules), "utf-8")
    (tmp_path / "test.yaml").write_text(yaml.safe_dump(test), "utf-8")
    outcome = promtool("test", "rules", tmp_path / "test.yaml")
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
