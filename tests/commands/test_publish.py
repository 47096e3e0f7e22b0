"""`enricher publish` against the real broker: keys, malformed lines, refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from commands.cli_runner import article, json_lines, run
from support.reading import read_all

from enricher.errors import BrokerError, FatalError, InvalidArticle
from enricher.operate.publish import key_of
from enricher.worker.articles import DeleteEvents, FieldMapping
from enricher.worker.settings import load_settings
from enricher.worker.wiring.formats import line_mapping

if TYPE_CHECKING:
    from support.topics import Topics


@pytest.mark.broker
def test_every_line_is_published_under_its_id(topics: Topics, tmp_path: Path) -> None:
    """The key is the article's id, and the value the line, byte for byte, valid or not; blank lines are skipped.

    Lines without an id are left out and named: they would be published without a key.
    """
    file = tmp_path / "articles.jsonl"
    file.write_text('{"id": "a"}\n\nnot json\n{"id": 7}\n' + json_lines(article("b")))
    result = run("publish", str(file), env=topics.environment)
    assert isinstance(result.exception, FatalError)
    assert f"2 lines were not published: {file}, line 3: value is not valid JSON" in str(result.exception)
    assert ", 2 refused\n" in result.stderr
    published = {message.key(): message.value() for message in read_all(topics.bootstrap_servers, topics.input)}
    assert published == {b"a": b'{"id": "a"}', b"b": json.dumps(article("b")).encode()}


@pytest.mark.broker
def test_a_refused_article_ends_in_a_broker_error_with_the_reason(topics: Topics) -> None:
    """Refused articles are counted, the others are published, and the exit code is not 0."""
    lines = json_lines(article("a"), article("b", body="x" * 17_000_000))
    result = run("publish", "-", env=topics.environment, stdin=lines)
    assert isinstance(result.exception, BrokerError)
    assert "1 of 2 articles" in str(result.exception)
    assert "MSG_SIZE_TOO_LARGE" in str(result.exception)
    assert [message.key() for message in read_all(topics.bootstrap_servers, topics.input)] == [b"a"]


@pytest.mark.broker
def test_tombstones_follow_their_articles_into_the_same_partitions(topics: Topics) -> None:
    """A null value under each key, behind its article: in another partition it could be overtaken and delete nothing."""
    keys = [f"ø-{number}" for number in range(8)]
    assert run("publish", "-", env=topics.environment, stdin=json_lines(*map(article, keys))).exit_code == 0
    options = [word for key in keys[:6] for word in ("--tombstone", key)]
    result = run("publish", *options, env=topics.environment)
    assert result.exit_code == 0, result.output
    assert "6 tombstones, " in result.stderr
    places: dict[bytes | None, list[tuple[int | None, bool]]] = {}
    for message in read_all(topics.bootstrap_servers, topics.input):
        places.setdefault(message.key(), []).append((message.partition(), message.value() is None))
    for number, key in enumerate(keys):
        found = places[key.encode()]
        assert [False, True][: 2 if number < 6 else 1] == [deleted for _, deleted in found]
        assert len({partition for partition, _ in found}) == 1
    assert len({found[0][0] for found in places.values()}) > 1


@pytest.mark.parametrize(
    ("words", "id_from", "said"),
    [
        ((), "/id", "nothing to publish"),
        (("-", "--tombstone", "a"), "/id", "goes without files"),
        (("--tombstone", "a", "--tombstone", ""), "/id", "is empty"),
        (("nothing.jsonl",), "/id", "nothing.jsonl"),
        (("-",), "header:ce_id", "takes the id from header:ce_id, and publish writes no headers"),
    ],
)
def test_what_is_to_be_published_must_be_clear(words: tuple[str, ...], id_from: str, said: str) -> None:
    """Each mistake, a file that is missing too, is refused before the broker is asked.

    Without its header, the worker would make a dead letter of every article.
    """
    result = run("publish", *words, env={"ENRICHER_ARTICLES__FIELDS": json.dumps({"id": id_from})}, stdin="")
    assert isinstance(result.exception, FatalError)
    assert said in str(result.exception)


@pytest.mark.broker
def test_a_missing_topic_is_not_created_by_publishing(topics: Topics) -> None:
    """A mistyped topic is an error, not a new topic."""
    environment = topics.environment | {"ENRICHER_KAFKA__INPUT_TOPIC": f"{topics.input}-mistyped"}
    result = run("publish", "-", env=environment, stdin=json_lines(article("a")))
    assert isinstance(result.exception, BrokerError)
    assert "there is no topic" in str(result.exception)


def test_keys_are_ids_wherever_the_mapping_finds_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also numbers, where they are ids; in a file, which has no keys, the id is the line's own. Refusals are a worker's."""
    deep = FieldMapping({"id": "/meta/ids/1"}, scalar_ids=True)
    assert (b"x", b"7") == tuple(key_of(b'{"meta": {"ids": [0, %b]}}' % each, deep) for each in (b'"x"', b"7"))
    with pytest.raises(InvalidArticle, match="id is missing at /meta/ids/1"):
        key_of(b'{"id": "x"}', deep)
    with pytest.raises(InvalidArticle, match="id is not a string"):
        key_of(b'{"id": 1}', FieldMapping())
    monkeypatch.setenv("ENRICHER_ARTICLES__FIELDS", '{"id": "key"}')
    assert b"a" == key_of(b'\xef\xbb\xbf{"id":"a"}', line_mapping(load_settings()))


def test_the_key_of_a_delete_event_is_the_id_that_it_deletes() -> None:
    """A row that is deleted is no longer where articles have their ids."""
    usual, before = (FieldMapping({"id": where}, scalar_ids=True) for where in ("/after/id", "/before/id"))
    deletes = DeleteEvents("/op", ["d"], before)
    gone = b'{"op": "d", "before": {"id": 7}, "after": null}'
    assert b"7" == key_of(gone, usual, deletes)
    assert b"8" == key_of(b'{"op": "c", "before": null, "after": {"id": 8}}', usual, deletes)
    with pytest.raises(InvalidArticle, match="id is missing at /after/id"):
        key_of(gone, usual)
