"""HTML through all commands against the real broker: publish, run, tail, verify."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commands.cli_runner import json_lines, run
from kafka.harness import worker
from support.patience import PATIENCE_S
from support.reading import read_all
from support.topics import Topics

BODY = "<p>Nobody was hurt.</p>\n<p>Ana <b>Rib</b>eiro lives&nbsp;in <a href='/Rome'>Lis&#98;on</a>.<br>"


@pytest.mark.broker
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
    report = run("verify", "--wait", "10", "--recompute", "100", "--json", env=environment)
    assert 0 == report.exit_code, report.output
    assert 2 == next(each["checked"] for each in json.loads(report.stdout)["checks"] if each["check"] == "payload")
    as_text = environment | {"ENRICHER_ARTICLES__BODY_FORMAT": "text"}
    assert 8 == run("verify", "--recompute", "100", env=as_text).exit_code, "other texts are other records"
