"""The Grafana dashboard: it shows all instruments, and only what a worker exports."""

from __future__ import annotations

import json
import re
import subprocess
from itertools import combinations
from pathlib import Path

import pytest
import yaml
from support.offenders import assert_none

from deploy.monitoring.generator.exported import EVERY_INSTRUMENT, instruments_by_series, series_of
from deploy.monitoring.generator.expressions import labels_of, metrics_of
from deploy.monitoring.generator.files import DASHBOARD
from deploy.monitoring.generator.grafana import as_text, dashboard
from deploy.monitoring.generator.layout import ROWS
from deploy.monitoring.generator.seen import SILENT, questions, recorded_names
from enricher.worker.telemetry.prometheus import label_name
from tools.programs import found, missing

MODEL = dashboard(ROWS)
PANELS = [panel for row in ROWS for panel in row.panels]
EXPRESSIONS = [query.expression for panel in PANELS for query in panel.queries]
OF_THE_SCRAPE = {"namespace", "job", "instance", "le"}


def test_the_file_is_what_the_script_writes() -> None:
    """It was not edited by hand, and `scripts/dashboard` was run after the last change."""
    assert as_text(MODEL) == DASHBOARD.read_text("utf-8")


def unknown_in(expression: str) -> set[str]:
    """Metrics that a query reads and nobody exports or records, and labels that are not theirs."""
    exported, used = instruments_by_series(), metrics_of(expression)
    own = {label_name(name) for metric in used & exported.keys() for name in exported[metric].attributes}
    labels = labels_of(expression) - own - OF_THE_SCRAPE
    return labels | (used - exported.keys() - set(recorded_names())) or (set() if used else {"no metric"})


@pytest.mark.slow
def test_a_query_reads_only_what_there_is() -> None:
    """Metrics are exported or recorded, and labels are theirs."""
    assert_none(f"{expression}: {name}" for expression in EXPRESSIONS for name in unknown_in(expression))


def test_every_instrument_is_in_a_panel() -> None:
    """No instrument is left out."""
    shown = {name for expression in EXPRESSIONS for name in metrics_of(expression)}
    assert_none(each.name for each in EVERY_INSTRUMENT if shown.isdisjoint(series_of(each)))


def test_every_panel_says_what_it_shows() -> None:
    """It comes from the instruments, or from a note for recorded series."""
    assert [panel.title for panel in PANELS if not panel.description] == []


def test_titles_are_different() -> None:
    """The runbook refers to panels by title."""
    assert len({panel.title for panel in PANELS}) == len(PANELS)


def test_panels_have_stable_ids_and_do_not_overlap() -> None:
    """Ids are consecutive numbers, and positions are inside the grid."""
    placed = MODEL["panels"]
    assert list(range(1, len(placed) + 1)) == [panel["id"] for panel in placed]
    for panel in placed:
        assert 0 <= panel["gridPos"]["x"] <= 24 - panel["gridPos"]["w"]
    for one, other in combinations((panel["gridPos"] for panel in placed), 2):
        apart = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        assert apart or one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]


def test_queries_use_the_variables_that_there_are() -> None:
    """Data source, namespace, group and worker can be selected, and nothing else is assumed."""
    names = {variable["name"] for variable in MODEL["templating"]["list"]}
    used = set(re.findall(r"\$\{?([a-z_]+)", json.dumps(MODEL["panels"])))
    assert {"datasource", "namespace", "job", "instance"} == names
    assert used - {"__rate_interval"} == names
    assert all(panel["datasource"]["uid"] == "${datasource}" for panel in MODEL["panels"] if panel["type"] != "row")


def test_it_can_be_found_again() -> None:
    """It has the same identity in every Grafana, and a schema that current versions accept."""
    assert MODEL["uid"] == "enricher"
    assert MODEL["schemaVersion"] == 39


def test_exceptions_are_metrics_that_are_shown() -> None:
    """The list of metrics without answers names only metrics that are shown."""
    shown = {name for question in questions() for name in metrics_of(question.expression)}
    assert SILENT.keys() <= shown


@pytest.mark.skipif(found("promtool") is None, reason=missing("promtool"))
def test_every_query_is_promql(tmp_path: Path) -> None:
    """Promtool accepts each as the expression of a rule."""
    rules = [{"record": f"query:{number}", "expr": question.expression} for number, question in enumerate(questions())]
    path = tmp_path / "queries.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": rules}]}), "utf-8")
    program = found("promtool")
    assert program is not None
    outcome = subprocess.run([program, "check", "rules", path], capture_output=True, text=True, check=False)
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    assert f"{len(rules)} rules found" in outcome.stdout


@pytest.mark.parametrize(
    ("expression", "metrics", "labels"),
    [
        ("up", {"up"}, set()),
        ('sum by (job, le) (rate(a_bucket{x="b c", le=~"1"}[5m]))', {"a_bucket"}, {"job", "le", "x"}),
        ("a / on (job) group_left (version) b offset 1w", {"a", "b"}, {"job", "version"}),
        ("job:a:rate5m > 14.4 and b unless c == 0", {"job:a:rate5m", "b", "c"}, set()),
        (
            'histogram_quantile(0.9, sum by (le) (rate(a_bucket{job=~"$job"}[$__rate_interval])))',
            {"a_bucket"},
            {"le", "job"},
        ),
        ("a{b='}'} * 1e9", {"a"}, {"b"}),
    ],
)
def test_metrics_and_labels_are_found_in_expressions(expression: str, metrics: set[str], labels: set[str]) -> None:
    """The checks above depend on this."""
    assert metrics == metrics_of(expression)
    assert labels == labels_of(expression)
