"""A team's own code in `enrich`, `doctor`, `model inspect` and the Python interface: the door of the worker."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from commands.cli_runner import article, json_lines, run
from commands.model_app import tiny_model
from commands.test_doctor_findings import found
from python.test_enricher import enricher_of
from support import team_packages

from enricher.worker.commands import enrich
from tools.chaos.stub import StubEngine, stub_model
from tools.worker_parts import tasks_of

CODE = """
def before(document, headers):
    print("printed")
    return None if document["id"] == "skipped" else document

def after(record):
    print("printed")
    return {**record, "metadata": {"team": no_such_name}} if record["id"] == "failing" else record
"""
ARTICLES = [article(name) for name in ("one", "skipped", "failing")]
NAMES = {"ENRICHER_ARTICLES__TRANSFORM": "before", "ENRICHER_OUTPUT__TRANSFORM": "after"}
CARDS = ["before of team-code 1.2", "after of team-code 1.2"]


@pytest.fixture(autouse=True)
def _team(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "code"
    folder.mkdir()
    team_packages.install(folder, CODE, ["before", "after"])
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "team_code", raising=False)


def test_enrich_answers_each_article_and_prints_on_standard_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Standard output has records alone; a skip is an answer and no failure."""
    monkeypatch.setattr(enrich, "load_tasks", lambda settings, **_: tasks_of(settings, stub_model(StubEngine())))
    file, refused = tmp_path / "articles.jsonl", tmp_path / "refused.jsonl"
    file.write_text(json_lines(*ARTICLES))
    result = run("enrich", str(file), "--dead-letters", str(refused), env=NAMES)
    assert ["one"] == [json.loads(line)["id"] for line in result.stdout.splitlines()]
    assert "printed" in result.stderr
    reasons = [json.loads(line)["error_type"] for line in refused.read_text().splitlines()]
    assert ["Skipped", "NameError"] == reasons
    file.write_text(json_lines(*ARTICLES[:2]))
    assert 0 == run("enrich", str(file), "--strict", env=NAMES).exit_code


def test_the_python_interface_answers_a_skip_with_a_refusal() -> None:
    """One answer for each article."""
    with enricher_of(articles={"transform": "before"}, output={"transform": "after"}) as enricher:
        answers = [*enricher.enrich(ARTICLES)]
    kinds = [(answer.stage, answer.error_type) if answer.reason else "record" for answer in answers]
    assert ["record", ("transform", "Skipped"), ("transform", "NameError")] == kinds


def test_doctor_counts_what_would_be_skipped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of the newest articles, by the function itself; what it prints is not among the findings."""
    monkeypatch.setenv("ENRICHER_ARTICLES__TRANSFORM", "before")
    seen = found([*ARTICLES, {"title": "no id"}], monkeypatch)["the newest articles"]
    assert "warn" == seen.verdict.lower()
    assert "2 of the newest 4 records of 'articles' can be read, articles.transform skips 1; 1 x 'id'" == seen.seen
    assert "printed" not in capsys.readouterr().out
    settings = run("doctor", "--only", "settings", "--json", env=NAMES)
    assert f'"{CARDS[0]}, {CARDS[1]}"' in settings.stdout


def test_inspect_names_the_functions_of_the_settings(tmp_path: Path) -> None:
    """Of a worker with these settings and this model."""
    model = tiny_model(tmp_path / "model")
    assert CARDS == json.loads(run("model", "inspect", str(model), "--json", env=NAMES).stdout)["transforms"]
