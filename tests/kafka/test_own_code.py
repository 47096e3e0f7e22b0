"""A team's own code in a worker on a real broker: skips and dead letters."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest
from commands.cli_runner import run
from kafka.harness import as_sent, assert_exactly_once, headers_of, publish, short_articles
from kafka.test_bad_input import run_worker
from support import team_packages
from support.operating import commit, write
from support.reading import committed_and_ends, read_all
from support.topics import Topics

from enricher.operate.verify import command
from tools.chaos.stub import StubEngine, stub_model
from tools.worker_parts import tasks_of

pytestmark = pytest.mark.broker

CODE_OF_THE_TEAM = """
def before(document, headers):
    print("this is on no result")
    if document["title"].startswith("skip"):
        return None
    return {**document, "title": document["title"].upper()}

def after(record):
    if record["id"] != "short-7":
        return record
    raise ValueError("a part of the article")
"""
BOTH = {"ENRICHER_ARTICLES__TRANSFORM": "before", "ENRICHER_OUTPUT__TRANSFORM": "after"}


@pytest.fixture
def team(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the package of the team, on the path."""
    folder = tmp_path / "code"
    folder.mkdir()
    team_packages.install(folder, CODE_OF_THE_TEAM, ["before", "after"])
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "team_code", raising=False)
    return folder


def verified(topics: Topics, monkeypatch: pytest.MonkeyPatch, expected: int, **more: str) -> dict[str, Any]:
    """What `verify --recompute` reports: checks and facts."""
    monkeypatch.setattr(command, "load_tasks", lambda settings: tasks_of(settings, stub_model(StubEngine())))
    result = run("verify", "--recompute", "1000", "--json", env={**topics.environment, **more})
    assert expected == result.exit_code, result.output
    report = json.loads(result.stdout)
    found: dict[str, Any] = {each["check"]: each for each in report["checks"]} | report["facts"]
    return found


@pytest.mark.usefixtures("team")
def test_a_skip_has_no_output_and_an_error_a_dead_letter(
    topics: Topics, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Committed, counted and verified; a record that is lost is not taken for a skip, nor a skip for one that is lost."""
    articles = short_articles(20)
    for number in (2, 3, 19):
        articles[number]["title"] = f"skip {number}"
    places = publish(topics.bootstrap_servers, topics.input, map(as_sent, articles))
    counters = run_worker(topics, monkeypatch, stub_model(StubEngine()), **BOTH)
    records, letters = (read_all(topics.bootstrap_servers, each) for each in (topics.output, topics.dead_letters))
    assert (16, 3, {"transform:ValueError": 1}) == (counters.records, counters.skipped, dict(counters.dead_letters))
    assert {"articles", "output"} == counters.transform_s.keys()
    kept = {place: sent for place, sent in places.items() if b'"title":"skip' not in (sent.value or b"")}
    assert_exactly_once([*records, *letters], kept)
    ends = committed_and_ends(topics.bootstrap_servers, topics.group, topics.input).values()
    assert all(committed in (end, -1001) for committed, end in ends)
    (letter,) = letters
    wanted = {"stage": b"transform", "error.type": b"ValueError", "error.message": b"a part of the article"}
    assert wanted == {name: headers_of(letter)[f"enricher.dlq.{name}"] for name in wanted}
    assert "ValueError" in caplog.text
    assert "a part of the article" not in caplog.text
    cards = [{"name": name, "package": "team-code", "version": "1.2"} for name in ("before", "after")]
    assert all(cards == orjson.loads(record.value() or b"")["transforms"] for record in records)

    found = verified(topics, monkeypatch, 0, **BOTH)
    assert {"ok"} == {each["state"] for each in found.values() if isinstance(each, dict)}
    assert (3, 16) == (found["inputs that articles.transform skips"], found["payload"]["checked"])
    monkeypatch.delenv("ENRICHER_ARTICLES__TRANSFORM")
    assert 3 == verified(topics, monkeypatch, 8)["lost"]["failed"], "without the function nobody knows"


@pytest.mark.usefixtures("team")
def test_a_lost_record_is_no_skip(topics: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: of two inputs without an output, the one that the function does not skip is lost."""
    articles = short_articles(5)
    articles[0]["title"] = "skip this"
    for some in (articles[:1], articles[1:]):
        publish(topics.bootstrap_servers, topics.input, map(as_sent, some))
        counters = run_worker(topics, monkeypatch, stub_model(StubEngine()), **BOTH)
        assert len(some) == counters.published, "also in a transaction of nothing but a skip"
    values = [orjson.dumps({"id": "z", "title": f"{word} it", "body": "b"}) for word in ("skip", "lose")]
    lost = [{"partition": 0, "key": b"k", "value": value} for value in values]
    write(topics.bootstrap_servers, topics.input, lost)
    ends = committed_and_ends(topics.bootstrap_servers, topics.group, topics.input)
    commit(topics.bootstrap_servers, topics.group, topics.input, {0: ends[0][1]})
    found = verified(topics, monkeypatch, 8, **BOTH)
    assert (1, 2) == (found["lost"]["failed"], found["inputs that articles.transform skips"])
