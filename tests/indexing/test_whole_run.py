"""All troubles in one run, and `index verify` over it: right as shipped, wrong with any of its rules broken.

Two indexers, of which one is late; `kill -9`, also while a request is on its way that is executed in the end; an index that
is busy, cuts connections and is restarted; a replay by another model through a topic of its own, while live records come.
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest
from commands.cli_runner import run
from indexing.stage import Late, Publishers, Stage, hold, make_stage
from support.patience import PATIENCE_S, wait_until
from support.reading import read_all
from support.search_server import InFront, SearchServer, cut_after, refuse, serving

from enricher.indexing.search_clients import open_index
from enricher.worker.settings import IndexSettings
from tools.kafka import Cluster
from tools.opensearch import OpenSearch

pytestmark = pytest.mark.broker

CONTROLS = ("output-offset", "no-version", "unversioned-deletes", "commits-first")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How large a run is. `keys`: 40 % of the records."""

    keys: int
    kills: int
    behind_s: float
    patience_s: float


BRIEF = Scale(keys=400, kills=1, behind_s=0.5, patience_s=PATIENCE_S)
FULL = Scale(keys=8_000, kills=5, behind_s=5.0, patience_s=10 * PATIENCE_S)


@dataclass(frozen=True, slots=True)
class Run:
    """Indexers between a stage and an index. `odd`: the rule that they break."""

    stage: Stage
    between: SearchServer
    scale: Scale
    odd: str
    server: OpenSearch | None = None
    """What is behind `between`, to be restarted."""

    def outcome(self) -> Publishers:
        """Run it all; returns what the publishers wanted."""
        publishers, late = Publishers(), Late()
        story = publishers.story(self.scale.keys)
        size = len(story) // self.scale.kills
        with self._indexer("behind", index__max_batch_documents="50") as behind:
            for part in range(self.scale.kills):
                records = story[part * size : (part + 1) * size]
                with self._indexer(f"killed-{part}") as killed:
                    self.stage.publish(records[: size // 2])
                    self._wait_for_members("behind", f"killed-{part}")
                    with self._suspended(behind):
                        hold(self.between, late)
                        self.stage.publish(records[size // 2 :])
                        wait_until(lambda: len(late) > part, PATIENCE_S, "a request is on its way")  # noqa: B023  at once
                        killed.kill()
                    self.between.behaviours.extend([refuse(429), cut_after, refuse(503)])
                    if self.server and part == self.scale.kills // 2:
                        self.server.restart()
            # Each input of the first half once more, by a model of the next generation, while the live ones go on.
            first_half = {(each.key, each.version): each for each in story[: len(story) // 2]}
            self.stage.publish([publishers.write_again(each) for each in first_half.values()], self.stage.replayed)
            with self._indexer("replay", "--until-caught-up", kafka__output_topic=self.stage.replayed) as replaying:
                live = publishers.more(self.scale.keys // 20)
                self.stage.publish(live)
                assert 0 == replaying.wait(self.scale.patience_s)
            behind.kill()
        with self._indexer("last", "--until-caught-up") as last:
            assert 0 == last.wait(self.scale.patience_s)
        for each in late[:-1]:  # the last one never comes
            self.between.bulk(*each)
        return publishers

    def verified(self) -> tuple[int, dict[str, int]]:
        """The exit code of `index verify`, and the kinds of differences."""
        verified = run("index", "verify", "--json", "--also", self.stage.replayed, env=self.stage.environment)
        assert verified.stdout, verified.exception
        report = json.loads(verified.stdout)
        return verified.exit_code, {each["kind"]: each["count"] for each in report["differences"]}

    def _indexer(self, instance: str, *arguments: str, **settings: str) -> Any:  # noqa: ANN401  a context manager
        return self.stage.indexer(*arguments, odd=self.odd, kafka__instance=instance, **settings)

    def _wait_for_members(self, *instances: str) -> None:
        wait_until(lambda: {*instances} <= self.stage.members(), PATIENCE_S, "both have partitions")

    @contextmanager
    def _suspended(self, process: Any) -> Iterator[None]:  # noqa: ANN401  a `Forked`
        until_s = time.monotonic() + self.scale.behind_s
        process.suspend()
        yield
        wait_until(lambda: time.monotonic() > until_s, PATIENCE_S, "one is behind")
        process.send_signal(signal.SIGCONT)


def texts_wanted(publishers: Publishers) -> dict[str, tuple[int, str]]:
    """Number and digest of the newest record of each key that is not deleted."""
    return {
        key: (written.record["number"], written.record["model"]["digest"])
        for key, written in publishers.wanted.items()
        if written.record is not None
    }


def text_of(body: Mapping[str, Any]) -> tuple[int, str]:
    """The same of a document."""
    return body["number"], body["model"]["digest"]


@pytest.mark.parametrize(
    "odd", ["", "output-offset", *(pytest.param(each, marks=pytest.mark.long) for each in CONTROLS[1:])]
)
def test_a_brief_run_ends_right_and_its_controls_do_not(broker: Cluster, odd: str) -> None:
    """1,000 records of 400 keys, on the stand-in, which refuses large requests. `test_indexer.py` has more controls."""
    with serving() as search:
        search.max_bytes = 10_000
        whole = Run(make_stage(broker.bootstrap_servers, search.url), search, BRIEF, odd)
        wanted = texts_wanted(whole.outcome())
        code, differences = whole.verified()
        assert 8 == run("index", "verify", env=whole.stage.environment).exit_code, "the replay's records are there too"
        is_right = wanted == {key: text_of(body) for key, (_, body) in search.found.items()}
    assert ((8, False) if odd else (0, True)) == (code, is_right), differences
    assert {"A", "B"} == {digest for _, digest in wanted.values()}
    assert max(search.sizes) > search.max_bytes, "none was too large"
    assert odd or read_all(whole.stage.topics.bootstrap_servers, whole.stage.letters) == []


@pytest.fixture
def small_opensearch() -> Iterator[OpenSearch]:
    """A node that can be restarted, and has too much to do with two requests at once."""
    with OpenSearch(settings={"thread_pool.write.size": 1, "thread_pool.write.queue_size": 1}) as server:
        yield server


@pytest.mark.long
@pytest.mark.timeout(3_000)
@pytest.mark.parametrize("odd", ["", *CONTROLS])
def test_a_long_run_ends_right_and_its_controls_do_not(broker: Cluster, small_opensearch: OpenSearch, odd: str) -> None:
    """20,000 records of 8,000 keys, one indexer five seconds behind, five times `kill -9`, OpenSearch restarted."""
    with serving(InFront(small_opensearch.url)) as between:
        stage = make_stage(broker.bootstrap_servers, between.url)
        settings = IndexSettings(url=small_opensearch.url, name=stage.topics.group)
        with closing(open_index(settings)) as index:
            index.create({"settings": {"index.gc_deletes": "1d", "number_of_shards": 4}})
        whole = Run(stage, between, FULL, odd, small_opensearch)
        publishers = whole.outcome()
        code, differences = whole.verified()
        query = {"size": FULL.keys, "_source": ["number", "model.digest"]}
        found = httpx2.post(f"{small_opensearch.url}/{settings.name}/_search", json=query, timeout=PATIENCE_S)
        hits = found.raise_for_status().json()["hits"]["hits"]
    assert read_all(stage.topics.bootstrap_servers, stage.letters) == []
    is_right = texts_wanted(publishers) == {hit["_id"]: text_of(hit["_source"]) for hit in hits}
    assert ((8, False) if odd else (0, True)) == (code, is_right), differences
