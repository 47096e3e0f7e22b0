"""Indexers in front of a real OpenSearch: what it answers is what the stand-in answers, and the index ends up right."""

from __future__ import annotations

from contextlib import closing

import httpx2
import orjson
import pytest
from commands.cli_runner import run
from indexing.stage import Publishers, Stage, article, make_stage
from kafka.harness import headers_of
from support.patience import PATIENCE_S
from support.reading import read_all

from enricher.errors import SettingsError
from enricher.indexing.search_clients import open_index
from enricher.indexing.search_index import SearchIndex
from enricher.worker.settings import IndexSettings
from tools.kafka import Cluster

pytestmark = pytest.mark.broker


@pytest.fixture
def stage(broker: Cluster, search_url: str) -> Stage:
    """Topics and a real index of their own."""
    return make_stage(broker.bootstrap_servers, search_url)


def opened(stage: Stage, url: str) -> SearchIndex:
    """The index of the stage."""
    return open_index(IndexSettings(url=url, name=stage.topics.group))


def test_one_record_of_500_does_not_fit_and_the_rest_is_indexed(stage: Stage, search_url: str) -> None:
    """Updates, deletions, older versions and odd ids too: the index holds the newest of each key."""
    publishers = Publishers()
    odd = [publishers.write(key, article(key)) for key in ("k" * 508 + "-601", 'a\n\x00\t"\\\u2028/../é-602')]
    records = [publishers.write(f"key-{number}", article(f"key-{number}", number)) for number in range(480)]
    bad = publishers.write("key-481", {**article("key-481"), "number": "Angela Merkel"})
    gone = [publishers.write(f"key-{number}", None) for number in (3, 4, 1_000)]
    again = publishers.write("key-5", article("key-5", 5))
    stage.publish([*odd, *records[:200], bad, *records[200:], *gone, again, *records[:15]])
    with stage.indexer("--until-caught-up", index__max_batch_documents="500") as indexer:
        assert 0 == indexer.wait(PATIENCE_S)
    expected = publishers.expected()
    expected.pop("key-481")
    with closing(opened(stage, search_url)) as index:
        index.refresh()
        assert expected == dict(index.versions())
        noted = (index.meta() or {})["enricher"]
    assert (stage.topics.input, 0) == (noted["input_topic"], noted["epoch"])
    [letter] = read_all(stage.topics.bootstrap_servers, stage.letters)
    headers = headers_of(letter)
    assert (b"key-481", bad.record) == (letter.key(), orjson.loads(letter.value() or b""))
    assert headers["enricher.version"] == b"%d" % bad.version
    assert headers["enricher.index.error.type"] in {b"mapper_parsing_exception", b"document_parsing_exception"}
    assert headers["enricher.index.error.message"] == b"the index answers with status 400 in the field 'number'"
    assert headers["enricher.index.source.partition"] == b"1"
    assert not any(b"Merkel" in (value or b"") for value in headers.values())


def test_an_alias_of_several_indices_is_refused(stage: Stage, search_url: str) -> None:
    """After a rollover a newer version would lie beside the older one, and a deletion would miss its document."""
    name, alias = stage.topics.group, f"/{stage.topics.group}"
    with httpx2.Client(base_url=search_url, timeout=PATIENCE_S) as client:
        first = {"aliases": {name: {"is_write_index": True}}}
        client.put(f"{alias}-000001", json=first).raise_for_status()
        publishers = Publishers()
        stage.publish([publishers.write("key-1", article("key-1"))])
        with stage.indexer("--until-caught-up") as indexer:
            assert 0 == indexer.wait(PATIENCE_S)
        client.post(f"{alias}/_rollover").raise_for_status()
    stage.publish([publishers.write("key-1", None)])
    with stage.indexer("--until-caught-up") as indexer:
        assert 2 == indexer.wait(PATIENCE_S)
    assert stage.lag()
    with (
        closing(opened(stage, search_url)) as index,
        pytest.raises(SettingsError, match=f"{name}-000001, {name}-000002"),
    ):
        index.meta()


def test_a_template_inside_the_pattern_of_another_is_installed_too(stage: Stage) -> None:
    """`articles-next` fits the pattern `articles-*`: the longer name wins."""
    name = stage.environment["ENRICHER_INDEX__NAME"]
    for each in (name, f"{name}-next", name):
        result = run("index", "template", "--install", env={**stage.environment, "ENRICHER_INDEX__NAME": each})
        assert 0 == result.exit_code, result.exception
