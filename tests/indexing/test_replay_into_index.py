"""A replay by another model into the index that live workers feed: it replaces older enrichments, and no newer article."""

from __future__ import annotations

import os

import orjson
import pytest
from commands.cli_runner import run
from indexing.stage import PARTITIONS, Stage, make_stage
from kafka.harness import Sent, as_sent, publish, short_articles, source_of, worker
from support.forked import Forked
from support.operating import commit
from support.patience import PATIENCE_S, wait_until
from support.reading import committed_and_ends, read_all
from support.search_server import SearchServer, cut_after, refuse, serving
from support.stub_worker import OTHER_CARD, OTHER_STUB, STUB_WORKER

from tools.chaos.stub import CARD
from tools.kafka import Cluster
from tools.topics import make_topics

pytestmark = pytest.mark.broker

Places = dict[tuple[int, int], Sent]


def replay(stage: Stage) -> Forked:
    """A replay by another model than that of the live workers, from the second half of each partition on."""
    letters = f"{stage.replayed}.dead-letters"
    make_topics(stage.topics.bootstrap_servers, [letters], PARTITIONS)
    group = f"{stage.topics.group}.replay"
    ends = committed_and_ends(stage.topics.bootstrap_servers, stage.topics.group, stage.topics.input)
    halves = {number: end // 2 for number, (_, end) in ends.items()}
    commit(stage.topics.bootstrap_servers, group, stage.topics.input, halves, "")
    return Forked(
        [STUB_WORKER, "replay", "--into", stage.replayed, "--dead-letters", letters, "--group", group],
        {
            **os.environ,
            **stage.environment,
            OTHER_STUB: "yes",
            "ENRICHER_MODEL__GENERATION": "1",
            "ENRICHER_WORKER__MAX_ARTICLES_PER_SECOND": "15",
        },
    )


def wanted_of(places: Places, replayed: set[tuple[int, int]]) -> dict[str, tuple[str, str]]:
    """Tell, for each key that is not deleted, the title of its newest article, and which model must have enriched it."""
    newest = {places[place].key or b"": place for place in sorted(places)}
    return {
        key.decode(): (orjson.loads(value)["title"], (OTHER_CARD if place in replayed else CARD).digest)
        for key, place in newest.items()
        if (value := places[place].value) is not None
    }


def held_by(search: SearchServer) -> dict[str, tuple[str, str]]:
    """Read both from the index."""
    return {key: (body["title"], body["model"]["digest"]) for key, (_, body) in search.found.items()}


@pytest.mark.parametrize("odd", ["", "output-offset"])
def test_a_replay_replaces_what_is_older_while_live_records_come(broker: Cluster, odd: str) -> None:
    """Updates, deletes and new articles meanwhile. The control takes the offsets of outputs for versions."""
    with serving() as search:
        stage = make_stage(broker.bootstrap_servers, search.url, ENRICHER_OUTPUT__ARTICLE="whole")
        servers, articles = stage.topics.bootstrap_servers, short_articles(80)

        places = publish(servers, stage.topics.input, map(as_sent, articles))
        with worker(stage.environment, stub=True), stage.indexer(odd=odd):
            wait_until(lambda: len(search.found) == len(articles), PATIENCE_S, "the live records are indexed")
            search.behaviours.extend([refuse(429), cut_after])
            with (
                replay(stage) as replaying,
                stage.indexer(odd=odd, kafka__output_topic=stage.replayed),
            ):
                wait_until(lambda: bool(read_all(servers, stage.replayed)), PATIENCE_S, "the replay is at work")
                updates = [{**each, "title": f"{each['title']}, updated"} for each in articles[::4]]
                new = [{**each, "id": f"new-{each['id']}"} for each in short_articles(10, seed=2)]
                live = [*map(as_sent, updates + new), *(Sent(as_sent(each).key, None) for each in articles[1::8])]
                places |= publish(servers, stage.topics.input, live)
                assert 0 == replaying.wait(PATIENCE_S)
                outputs = len(places)
                wait_until(lambda: len(read_all(servers, stage.topics.output)) == outputs, PATIENCE_S, "live records")
                stage.wait_until_indexed()
                stage.wait_until_indexed(stage.replayed)
        wanted = wanted_of(places, set(map(source_of, read_all(servers, stage.replayed))))
        assert (wanted == held_by(search)) == (not odd)
        if not odd:
            assert {OTHER_CARD.digest, CARD.digest} == {each for _, each in wanted.values()}
            verified = run("index", "verify", "--also", stage.replayed, env=stage.environment)
            assert 0 == verified.exit_code, verified.output
            assert 8 == run("index", "verify", env=stage.environment).exit_code, "the replay's records are there too"
