"""Indexers in front of a real OpenSearch: what it answers is what the stand-in answers, and the index ends up right."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import closing

import orjson
import pytest
from indexing.stage import PARTITIONS, Publishers, Stage, article, make_stage
from kafka.harness import headers_of
from support.patience import PATIENCE_S, wait_until
from support.reading import read_all
from support.search_server import InFront, cut_after, refuse, serving

from enricher.indexing.open_index import open_index
from enricher.indexing.search_index import SearchIndex
from enricher.worker.settings import IndexSettings
from tools.kafka import Cluster
from tools.opensearch import OpenSearch

pytestmark = pytest.mark.broker


@pytest.fixture
def stage(broker: Cluster, opensearch: OpenSearch) -> Stage:
    """Topics and a real index of their own."""
    return make_stage(broker.bootstrap_servers, opensearch.url)


def opened(stage: Stage, url: str) -> SearchIndex:
    """The index of the stage."""
    return open_index(IndexSettings(url=url, name=stage.topics.group))


def versions_in(index: SearchIndex) -> dict[str, int]:
    """Id and version of every document."""
    index.refresh()
    return dict(index.versions())


def test_one_record_of_500_does_not_fit_and_the_rest_is_indexed(stage: Stage, opensearch: OpenSearch) -> None:
    """Updates, deletions and older versions too: the index holds the newest of each key."""
    publishers = Publishers()
    records = [publishers.write(f"key-{number}", article(f"key-{number}", number)) for number in range(480)]
    bad = publishers.write("key-481", {**article("key-481"), "number": "Angela Merkel"})
    gone = [publishers.write(f"key-{number}", None) for number in (3, 4, 1_000)]
    again = publishers.write("key-5", article("key-5", 5))
    stage.publish([*records[:200], bad, *records[200:], *gone, again, *records[:15]])
    with stage.indexer("--until-caught-up", index__max_batch_documents="500") as indexer:
        assert 0 == indexer.wait(PATIENCE_S)
    expected = publishers.expected()
    expected.pop("key-481")
    with closing(opened(stage, opensearch.url)) as index:
        assert expected == versions_in(index)
        noted = (index.meta() or {})["enricher"]
    assert (stage.topics.input, 0) == (noted["input_topic"], noted["epoch"])
    [letter] = read_all(stage.topics.bootstrap_servers, stage.letters)
    assert b"key-481" == letter.key()
    message = headers_of(letter)["enricher.index.error.message"] or b""
    assert b"the index answers with status 400 in the field 'number'" == message


@pytest.fixture
def small_opensearch() -> Iterator[OpenSearch]:
    """A node that can be restarted, and has too much to do at once."""
    with OpenSearch(settings={"thread_pool.write.size": 1, "thread_pool.write.queue_size": 4}) as server:
        yield server


@pytest.mark.long
@pytest.mark.timeout(1_200)
def test_through_kills_restarts_refusals_and_cuts(broker: Cluster, small_opensearch: OpenSearch) -> None:
    """20,000 records of 8,000 keys, two indexers of which one is late, five times `kill -9`."""
    with serving(InFront(small_opensearch.url)) as between:
        stage, publishers = make_stage(broker.bootstrap_servers, between.url), Publishers()
        story = publishers.story(20_000, 8_000)
        with closing(opened(stage, small_opensearch.url)) as index:
            index.create({"settings": {"index.gc_deletes": "1h", "number_of_shards": 4}})
        for part in range(5):
            records = story[part * 4_000 : (part + 1) * 4_000]
            between.behaviours.extend([refuse(429), cut_after, cut_after, refuse(503)])
            with stage.indexer() as killed, stage.indexer(index__max_batch_documents="50") as late:
                stage.publish(records[:2_000])
                between.bulks.clear()
                wait_until(lambda: len(between.bulks) > 3, PATIENCE_S, "both are at work")
                late.send_signal(signal.SIGSTOP)
                stage.publish(records[2_000:])
                between.bulks.clear()
                wait_until(lambda: len(between.bulks) > 3, PATIENCE_S, "one goes on alone")
                late.send_signal(signal.SIGCONT)
                if part == 2:
                    small_opensearch.restart()
                killed.kill()
        with stage.indexer("--until-caught-up") as indexer:
            assert 0 == indexer.wait(PATIENCE_S)
        assert read_all(stage.topics.bootstrap_servers, stage.letters) == []
        with closing(opened(stage, small_opensearch.url)) as index:
            assert publishers.expected() == versions_in(index)
            sample = orjson.dumps(index.search({"query": {"match": {"id": "key-1"}}}))
            assert len(publishers.offsets) == PARTITIONS
            assert b"facets" in sample or publishers.wanted["key-1"].record is None
