"""Records that contain their whole article, and records of HTML, through a real broker and back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commands.cli_runner import json_lines, run
from kafka.harness import Sent, header_list, headers_of, publish, worker
from support.patience import PATIENCE_S
from support.reading import read_all
from support.topics import Topics

pytestmark = pytest.mark.broker

TEXT = "Kari Nordmann went from Oslo to Lisbon."
NUMBERS = b'{"id":"numbers","body":"%s",\r\n "n":[1.0,1e2,-0,12345678901234567890123,0.10],\n "s":"\\u00e6\\/"}\n' % (
    TEXT.encode()
)
REGISTERED = b'\0\0\0\0\x07{"id": "registered", "body": "%s"}' % TEXT.encode()
EVENT = b'{"id":"line\\nbreak","body":"%s"}' % TEXT.encode()
EVENT_HEADERS = (
    ("ce_specversion", b"1.0"),
    ("ce_id", b"their-id"),
    ("ce_source", b"/newsroom"),
    ("ce_type", b"org.example.article"),
    ("content-type", b"application/json"),
)
LARGE = b'{"id":"large","body":"%s","ignored":"%s"}' % (TEXT.encode(), b"x" * 20_000)
DEEP = b'{"id":"deep","body":"%s","n":%s%s}' % (TEXT.encode(), b"[" * 600, b"]" * 600)
INPUTS = (
    Sent(b"numbers", NUMBERS),
    Sent(b"registered", REGISTERED),
    Sent(b"event", EVENT, EVENT_HEADERS),
    Sent(b"gone", None),
    Sent(b"large", LARGE, EVENT_HEADERS),
    Sent(b"deep", DEEP),
)
SETTINGS = {
    "ENRICHER_OUTPUT__ARTICLE": "whole",
    "ENRICHER_ARTICLES__MAX_RECORD_BYTES": "15000",
}


def test_whole_articles_arrive_as_they_were_written(topics: Topics) -> None:
    """Each article's bytes are in its record; dead letters are inputs untouched, with a reason that names the setting."""
    environment = topics.environment | SETTINGS
    publish(topics.bootstrap_servers, topics.input, INPUTS)
    with worker(environment, "--until-caught-up", stub=True) as process:
        assert process.wait(PATIENCE_S) == 0
    outputs = {message.key(): message for message in read_all(topics.bootstrap_servers, topics.output)}
    letters = {message.key(): message for message in read_all(topics.bootstrap_servers, topics.dead_letters)}
    assert {b"numbers", b"registered", b"event", b"gone"} == set(outputs)
    assert outputs[b"gone"].value() is None
    for key, document in {b"numbers": NUMBERS, b"registered": REGISTERED[5:], b"event": EVENT}.items():
        value = outputs[key].value() or b""
        assert value.endswith(b',"article":' + document + b"}")
        assert json.loads(value)
        assert headers_of(outputs[key])["content-type"] == b"application/json"
    assert {b"large": LARGE, b"deep": DEEP} == {key: letter.value() for key, letter in letters.items()}
    assert list(EVENT_HEADERS) == header_list(letters[b"large"])[: len(EVENT_HEADERS)]
    for key, stage in ((b"large", b"publish"), (b"deep", b"decode")):
        headers = headers_of(letters[key])
        assert stage == headers["enricher.dlq.stage"]
        assert b"output.article=whole" in (headers["enricher.dlq.error.message"] or b"")
    verified = run("verify", "--json", env=environment)
    assert verified.exit_code == 0, verified.output


BODY = "<p>Nobody was hurt.</p>\n<p>Ana <b>Rib</b>eiro lives&nbsp;in <a href='/Rome'>Lis&#98;on</a>.<br>"


@pytest.mark.usefixtures("shared_models")
def test_entities_of_html_count_in_it_and_read_as_its_reader_does(topics: Topics, tmp_path: Path) -> None:
    """The record says that it is HTML; `tail` shows its names; a recomputation by `verify` is equal; text stays text."""
    environment = topics.environment | {"ENRICHER_ARTICLES__BODY_FORMAT": "auto"}
    file = tmp_path / "articles.jsonl"
    articles = [
        {"id": "html", "title": "Storm", "body": BODY},
        {"id": "text", "title": "Storm", "body": "Q&amp;A in Oslo."},
    ]
    file.write_text(json_lines(*articles), "utf-8")
    assert 0 == run("publish", str(file), env=environment).exit_code
    with worker(environment, "--until-caught-up") as process:
        assert 0 == process.wait(PATIENCE_S)
    values = [json.loads(message.value() or b"") for message in read_all(topics.bootstrap_servers, topics.output)]
    records = {value["id"]: value for value in values}
    assert {"html": "html", "text": None} == {name: record.get("body_format") for name, record in records.items()}
    found = [(each["text"], BODY[each["start"] : each["end"]]) for each in records["html"]["entities"]]
    assert [("Ana Ribeiro", "Ana <b>Rib</b>eiro"), ("Lisbon", "Lis&#98;on")] == found
    shown = run("tail", "--from-beginning", "--until-end", env=environment)
    assert "  body: [Ana Ribeiro PER], [Lisbon LOC]\n" in shown.stdout, shown.output
    report = run("verify", "--recompute", "100", "--json", env=environment)
    assert 0 == report.exit_code, report.output
    assert 2 == next(each["checked"] for each in json.loads(report.stdout)["checks"] if each["check"] == "payload")
    as_text = environment | {"ENRICHER_ARTICLES__BODY_FORMAT": "text"}
    assert 8 == run("verify", "--recompute", "100", env=as_text).exit_code, "other texts are other records"
