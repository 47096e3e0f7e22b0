"""The report of a run, above all of one that failed."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from tools.chaos.campaign import Outcome
from tools.chaos.check import Findings
from tools.chaos.faults import KINDS
from tools.chaos.report import write_report
from tools.chaos.run import Plan, Run


def run_of(findings: Findings, outcome: Outcome) -> Run:
    """A short run that caught up in the end."""
    plan = Plan(1, 100.0, 1.0, None, KINDS, "4.3.1")
    return Run(plan, 60.0, [outcome], findings, {"exit_code": 0, "report": None}, [], {0: 5, 2: 7}, 0, caught_up=True)


def outcome_of(unexpected: dict[str, list[int]]) -> Outcome:
    """A fault after which the group recovered in a second."""
    return Outcome(1, "some fault", "worker-0", 1.0, 2.0, 20.0, 1.0, 2.0, {"worker-0": [5]}, 0.1, unexpected)


@pytest.fixture
def lossy() -> Findings:
    """Two inputs are lost."""
    findings = Findings(inputs=9, outputs=7)
    for place in (("id", 0, 3), ("id", 0, 4)):
        findings.note("lost", place)
    return findings


def test_run_with_losses_is_written_with_their_counts_and_places(lossy: Findings, tmp_path: Path) -> None:
    """JSON and Markdown both show the losses."""
    run = run_of(lossy, outcome_of({}))
    assert not run.good
    write_report(run, tmp_path)
    document = orjson.loads((tmp_path / "chaos.json").read_bytes())
    assert {"lost": 2} == document["findings"]["counts"]
    assert ["('id', 0, 3)", "('id', 0, 4)"] == document["findings"]["wrong"]["lost"]
    assert "2 lost, 0 doubled" in (tmp_path / "chaos.md").read_text("utf-8")
    assert "lost: 2, such as" in (tmp_path / "chaos.md").read_text("utf-8")


def test_worker_that_ends_without_a_reason_makes_a_run_bad(tmp_path: Path) -> None:
    """A run with an unexplained exit is bad, and the report names the fault."""
    assert run_of(Findings(), outcome_of({})).good
    run = run_of(Findings(), outcome_of({"worker-0": [4]}))
    assert run.exactly_once
    assert not run.good
    write_report(run, tmp_path)
    assert "worker-0 5 (unexpected)" in (tmp_path / "chaos.md").read_text("utf-8")
    assert "exit codes" in (tmp_path / "chaos.md").read_text("utf-8")
