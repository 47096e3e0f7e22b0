"""Articles that look different, through all commands against the real broker: publish, run, tail, verify."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commands.cli_runner import json_lines, run
from kafka.harness import worker
from support.patience import PATIENCE_S
from support.reading import read_all
from support.topics import Topics

FIELDS = {"id": "key", "title": "/headline", "body": "/content/text"}


@pytest.mark.broker
@pytest.mark.usefixtures("shared_models")
def test_all_commands_read_articles_where_the_settings_say(topics: Topics, tmp_path: Path) -> None:
    """Ids are keys, bodies are paragraphs, and the entities are those of the joined text."""
    environment = topics.environment | {
        "ENRICHER_ARTICLES__FIELDS": json.dumps(FIELDS),
        "ENRICHER_ARTICLES__PARAGRAPH_SEPARATOR": "\n \n",
    }
    paragraphs = ["Nobody was hurt.", "Ana Ribeiro lives in Lisbon."]
    articles = [
        {"id": f"a{number}", "headline": "Storm", "content": {"text": paragraphs}, "body": "Rome"}
        for number in range(9)
    ]
    file = tmp_path / "articles.jsonl"
    file.write_text(json_lines(*articles, {"id": "old", "headline": "Storm", "body": "Rome"}), "utf-8")
    assert 0 == run("publish", str(file), env=environment).exit_code
    with worker(environment, "--until-caught-up") as process:
        assert 0 == process.wait(PATIENCE_S)
    records = read_all(topics.bootstrap_servers, topics.output)
    assert {f"a{number}".encode(): f"a{number}" for number in range(9)} == {
        record.key(): json.loads(record.value() or b"")["id"] for record in records
    }
    (letter,) = read_all(topics.bootstrap_servers, topics.dead_letters)
    assert b"body is missing at /content/text" == dict(letter.headers() or ())["enricher.dlq.error.message"]
    shown = run("tail", "--from-beginning", "--until-end", env=environment)
    assert 9 == shown.stdout.count("  body: [Ana Ribeiro PER], [Lisbon LOC]\n"), shown.output
    report = run("verify", "--wait", "10", "--recompute", "100", "--json", env=environment)
    assert 0 == report.exit_code, report.output
    assert 9 == next(each["checked"] for each in json.loads(report.stdout)["checks"] if each["check"] == "payload")
    others = {"ENRICHER_ARTICLES__FIELDS": json.dumps(FIELDS | {"id": "header:x"})}
    assert 8 == run("verify", "--recompute", "100", env=environment | others).exit_code, "other ids are other records"
