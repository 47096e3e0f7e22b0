"""Bad input on a real broker, and what a team's own code skips or refuses: one dead letter each, or none; others go on."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest
from commands.cli_runner import run
from kafka.clients import config_for
from kafka.harness import Sent, as_sent, assert_exactly_once, header_list, headers_of, publish, short_articles
from support import team_packages
from support.operating import alter, commit, write
from support.reading import committed_and_ends, read_all
from support.topics import Topics

from enricher.operate.verify import command
from enricher.operate.verify.verification import verify
from enricher.worker.runtime.watchdog import Watchdog
from enricher.worker.settings import load_settings
from enricher.worker.stats import Counters
from enricher.worker.wiring.loaded_tasks import Model
from enricher.worker.wiring.workers import kafka_worker
from tools.chaos.stub import StubEngine, stub_model
from tools.worker_parts import tasks_of

pytestmark = pytest.mark.broker

GOOD = {"id": "good", "title": "Angela Merkel in Paris", "body": "Angela Merkel met Emmanuel Macron in Paris."}
CANARY = "xylophonist"
BAD = {
    "not JSON": (b'{"id": "a", "body": "xylophonist', "decode"),
    "JSON but no object": (b'["xylophonist"]', "decode"),
    "body missing": (b'{"id": "a", "title": "xylophonist"}', "decode"),
    "id of the wrong type": (b'{"id": 7, "body": "xylophonist"}', "decode"),
    "body of the wrong type": (b'{"id": "a", "body": 5, "title": "xylophonist"}', "decode"),
    "invalid UTF-8": (b'{"id": "a", "body": "xylophonist \xff"}', "decode"),
    "a lone surrogate": (b'{"id": "a", "body": "xylophonist \\ud800"}', "decode"),
    "no text": (b'{"id": "a", "body": ""}', "decode"),
    "white space only": (orjson.dumps({"id": "a", "body": " \n\t\u00a0"}), "decode"),
    "control characters only": (orjson.dumps({"id": "a", "body": "\x00\x01\x1b\u200b"}), "decode"),
    "10 MB of text": (orjson.dumps({"id": "a", "body": "xylophonist " * 840_000}), "decode"),
    "an id of 10 kB": (orjson.dumps({"id": "x" * 10_000, "body": "xylophonist"}), "decode"),
}
FINE: dict[str, dict[str, object]] = {
    "no entities": {"id": "plain", "body": "it rained all day and nothing happened."},
    "optional fields of the wrong type": {"id": "wrong", "title": 5, "url": [CANARY], "body": "It rained in Berlin."},
    "emoji": {"id": "emoji", "body": "\U0001f600\U0001f680 \U0001f1eb\U0001f1f7"},
    "combining characters": {"id": "combining", "body": "Zoe\u0308 Bru\u0308ck lives in Sa\u0303o Paulo."},
    "right to left": {"id": "rtl", "body": "\u0623\u0646\u062c\u064a\u0644\u0627 in Berlin"},
}


@pytest.fixture
def model() -> Model:
    """A stub."""
    return stub_model(StubEngine())


def run_worker(topics: Topics, monkeypatch: pytest.MonkeyPatch, model: Model, **more: str) -> Counters:
    """Run a worker in this process until it has caught up; returns its counters."""
    for name, value in {**topics.environment, **more}.items():
        monkeypatch.setenv(name, value)
    with Watchdog() as watchdog:
        settings = load_settings()
        worker = kafka_worker(settings, tasks_of(settings, model), guard=watchdog.guard, until_caught_up=True)
        worker.run()
    return worker.counters


def test_each_kind_of_bad_input_gives_one_dead_letter(
    topics: Topics, monkeypatch: pytest.MonkeyPatch, model: Model
) -> None:
    """Raw key, value and headers untouched; the reason names the rule and never holds text of the article."""
    headers = [("upstream", b"7"), ("upstream", b"8"), ("empty", None)]
    inputs = []
    for kind, (value, _) in BAD.items():
        inputs += [Sent(kind.encode(), value, headers), as_sent(GOOD)]
    places = publish(topics.bootstrap_servers, topics.input, [*inputs, *map(as_sent, FINE.values())])
    counters = run_worker(topics, monkeypatch, model)
    records = read_all(topics.bootstrap_servers, topics.output)
    dead = read_all(topics.bootstrap_servers, topics.dead_letters)
    assert_exactly_once([*records, *dead], places)
    letters = {(message.key() or b"").decode(): message for message in dead}
    assert letters.keys() == BAD.keys()
    for kind, (value, stage) in BAD.items():
        reason = headers_of(letters[kind])
        assert letters[kind].value() == value, kind
        assert header_list(letters[kind])[: len(headers)] == headers, kind
        assert reason["enricher.dlq.stage"] == stage.encode(), kind
        assert reason["enricher.dlq.error.message"], kind
        ours = b" ".join(value or b"" for name, value in reason.items() if name.startswith("enricher.dlq."))
        assert CANARY.encode() not in ours, kind
    assert len(records) == len(BAD) + len(FINE)
    values = [orjson.loads(message.value() or b"") for message in records]
    assert [("wrong", ["title", "url"])] == [(v["id"], v["dropped_fields"]) for v in values if "dropped_fields" in v]
    assert {"title": 1, "url": 1} == counters.dropped_fields


@pytest.mark.parametrize(("told", "length_bytes"), [(True, 1_048_400), (False, 2_000_000)])
def test_a_dead_letter_too_large_for_its_topic_takes_a_smaller_form(
    topics: Topics,
    monkeypatch: pytest.MonkeyPatch,
    model: Model,
    length_bytes: int,
    told: bool,  # noqa: FBT001  a parameter of the test
) -> None:
    """Whether the topic's limit is known or the broker refuses: one dead letter without its value, and the worker goes on.

    The first is the largest that fits into a topic with Kafka's defaults, where its letter has no room for the reason;
    the second needs an input topic that takes more than the dead-letter topic does.
    """
    alter(topics.bootstrap_servers, topics.dead_letters, {"max.message.bytes": "1048588"})
    if not told:
        monkeypatch.setattr("enricher.worker.kafka.sink.message_limits", lambda *_: {})
    bad = Sent(b"large", random.Random(1).randbytes(length_bytes))
    places = publish(topics.bootstrap_servers, topics.input, [as_sent(GOOD), bad, as_sent(GOOD)])
    counters = run_worker(topics, monkeypatch, model)
    records = read_all(topics.bootstrap_servers, topics.output)
    dead = read_all(topics.bootstrap_servers, topics.dead_letters)
    assert_exactly_once([*records, *dead], places)
    (letter,) = dead
    assert (b"large", None) == (letter.key(), letter.value())
    reason = headers_of(letter)
    assert (b"decode", b"%d" % length_bytes) == (
        reason["enricher.dlq.stage"],
        reason["enricher.dlq.value.omitted_bytes"],
    )
    assert (2, 0 if told else 1) == (counters.records, counters.recoveries)


FORGED = [("enricher.dlq.value.omitted_bytes", b"1"), ("enricher.record.id", b"mine"), ("kept", None)]
TRACE = [("traceparent", b"00-" + b"a" * 100_000), ("tracestate", b"s" * 100_000)]


def test_what_a_publisher_forges_is_kept_and_believed_by_nobody(
    topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dead letters have it under another name, records not at all, and `enricher verify` compares both as always."""
    good = as_sent({"id": "good", "body": "Ada in London"})
    inputs = [Sent(b"bad", b"{", FORGED), Sent(good.key, good.value, [*FORGED, *TRACE]), Sent(b"gone", None, FORGED)]
    publish(topics.bootstrap_servers, topics.input, inputs)
    run_worker(topics, monkeypatch, stub_model(StubEngine()))
    (letter,) = read_all(topics.bootstrap_servers, topics.dead_letters)
    escaped = [("input.enricher.dlq.value.omitted_bytes", b"1"), ("input.enricher.record.id", b"mine"), ("kept", None)]
    assert escaped == header_list(letter)[: len(FORGED)]
    assert b"{" == letter.value()
    for record in read_all(topics.bootstrap_servers, topics.output):
        assert not {*FORGED, *TRACE} & {*header_list(record)}
        assert 1_000 > sum(len(name) + len(value or b"") for name, value in header_list(record))
    report = verify(config_for(topics))
    assert [] == report.failed
    assert 1 == next(check.checked for check in report.checks if check.name == "dead letters")


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
