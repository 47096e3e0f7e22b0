"""The change events of a database, as `schemas/articles.md` shows Debezium's, through a real broker, and back."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import orjson
import pytest
from commands.cli_runner import run
from kafka.harness import Sent, assert_exactly_once, publish, worker
from pages.snippets import snippets
from support.patience import PATIENCE_S
from support.reading import read_all
from support.topics import Topics

from enricher.indexing.index_documents import DocumentMaker
from enricher.worker.kafka.metadata import raw_record

DELETES = 400
MARKED = {
    each.language: each.text
    for each in snippets()
    if each.page == "schemas/articles.md" and Path(__file__).name in each.mark
}
"""The two blocks of the page."""
SETTINGS, EVENT = MARKED["toml"], MARKED["json"]


def environment_of(topics: Topics) -> dict[str, str]:
    """A worker's, with the settings of the page."""
    articles = tomllib.loads(SETTINGS)["articles"]
    return topics.environment | {
        f"ENRICHER_ARTICLES__{name.upper()}": json.dumps(each) for name, each in articles.items()
    }


def event(number: int, **changed: object) -> dict[str, Any]:
    """The event of the page, for another article."""
    payload = json.loads(EVENT)["payload"]
    row = payload["before"] | {"id": number}
    return {
        "payload": payload | {"before": row} | {name: row if each is ... else each for name, each in changed.items()}
    }


def sent(number: int, value: object, *, key: bool = True) -> Sent:
    """As Debezium sends it: the key is a struct, unless the table has no primary key."""
    return Sent(
        orjson.dumps({"payload": {"id": number}}) if key else None, None if value is None else orjson.dumps(value)
    )


@pytest.mark.broker
def test_deletes_in_a_row_do_not_end_a_worker(topics: Topics) -> None:
    """Each is a tombstone with its key, beside the null values that Debezium adds; articles are enriched as ever."""
    created = [sent(number, event(number, op="c", before=None, after=...)) for number in range(3)]
    deleted = [sent(number, event(number)) for number in range(DELETES)]
    nulls = [sent(number, None) for number in range(3)]
    places = publish(topics.bootstrap_servers, topics.input, [*created, *deleted, *nulls])
    environment = environment_of(topics)
    with worker(environment, "--until-caught-up", stub=True) as process:
        assert 0 == process.wait(PATIENCE_S)
    outputs = read_all(topics.bootstrap_servers, topics.output)
    assert_exactly_once(outputs, places)
    assert DELETES + 3 == sum(message.value() is None for message in outputs)
    assert [] == read_all(topics.bootstrap_servers, topics.dead_letters)
    verified = run("verify", "--json", env=environment)
    assert 0 == verified.exit_code, verified.output
    forgotten = run("verify", "--json", env=topics.environment)
    assert 8 == forgotten.exit_code, "the negative control: without the setting these tombstones are wrong"


@pytest.mark.broker
def test_a_delete_without_a_key_deletes_by_its_id(topics: Topics) -> None:
    """The index has the record by its id, so the tombstone finds it; what has neither is a dead letter."""
    inputs = [
        sent(7, event(7, op="c", before=None, after=...), key=False),
        sent(7, event(7), key=False),
        sent(0, {"payload": {"op": "d", "before": None}}, key=False),
    ]
    publish(topics.bootstrap_servers, topics.input, inputs)
    environment = environment_of(topics)
    with worker(environment, "--until-caught-up", stub=True) as process:
        assert 0 == process.wait(PATIENCE_S)
    found = [DocumentMaker().document(raw_record(each)) for each in read_all(topics.bootstrap_servers, topics.output)]
    assert {("7", True), ("7", False)} == {(each.id, each.body is None) for each in found}
    assert 1 == len(read_all(topics.bootstrap_servers, topics.dead_letters))
    verified = run("verify", "--json", env=environment)
    assert 0 == verified.exit_code, verified.output
