"""All troubles in one run, and `index verify` over it: right as shipped, wrong where versions are offsets of the output.

Two indexers, of which one is late; `kill -9` while a request is on its way that is executed in the end; an index that is
busy and cuts connections; a replay by another model through another topic, while live records come.
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest
from commands.cli_runner import run
from indexing.stage import Late, Publishers, Stage, hold, make_stage
from support.forked import Forked
from support.patience import PATIENCE_S, wait_until
from support.reading import read_all
from support.search_server import SearchServer, cut_after, refuse, serving

from tools.kafka import Cluster

pytestmark = pytest.mark.broker

KEYS, BEHIND_S = 400, 0.5
"""400 keys make 1,000 records; how long one indexer stands still."""


def outcome(stage: Stage, search: SearchServer, odd: str) -> Publishers:
    """Run it all; returns what the publishers wanted. `odd`: the rule that the indexers break."""

    def indexer(instance: str, *arguments: str, **settings: str) -> AbstractContextManager[Forked]:
        return stage.indexer(*arguments, odd=odd, kafka__instance=instance, **settings)

    publishers, late = Publishers(), Late()
    story = publishers.story(KEYS)
    first_half, second_half = story[: len(story) // 2], story[len(story) // 2 :]
    with indexer("behind", index__max_batch_documents="50") as behind:
        with indexer("killed") as killed:
            stage.publish(first_half)
            wait_until(lambda: {"behind", "killed"} <= stage.members(), PATIENCE_S, "both have partitions")
            with suspended(behind):
                hold(search, late)
                stage.publish(second_half)
                wait_until(lambda: bool(late), PATIENCE_S, "a request is on its way")
                killed.kill()
            search.behaviours.extend([refuse(429), cut_after, refuse(503)])
        # Each input of the first half once more, by a model of the next generation, while the live ones go on.
        again = {(each.key, each.version): each for each in first_half}
        stage.publish([publishers.write_again(each) for each in again.values()], stage.replayed)
        with indexer("replay", "--until-caught-up", kafka__output_topic=stage.replayed) as replaying:
            stage.publish(publishers.more(KEYS // 20))
            assert 0 == replaying.wait(PATIENCE_S)
        behind.kill()
    with indexer("last", "--until-caught-up") as last:
        assert 0 == last.wait(PATIENCE_S)
    search.bulk(late[0])
    return publishers


@contextmanager
def suspended(process: Forked) -> Iterator[None]:
    """A process stands still, for a while at least."""
    until_s = time.monotonic() + BEHIND_S
    process.suspend()
    yield
    wait_until(lambda: time.monotonic() > until_s, PATIENCE_S, "one is behind")
    process.send_signal(signal.SIGCONT)


@pytest.mark.parametrize("odd", ["", "output-offset"])
def test_a_run_ends_right_and_its_control_does_not(broker: Cluster, odd: str) -> None:
    """On the stand-in, which refuses large requests. `test_indexer.py` has more controls."""
    with serving() as search:
        search.max_bytes = 10_000
        stage = make_stage(broker.bootstrap_servers, search.url)
        publishers = outcome(stage, search, odd)
        verified = run("index", "verify", "--json", "--also", stage.replayed, env=stage.environment)
        assert 8 == run("index", "verify", env=stage.environment).exit_code, "the replay's records are there too"
    newest = {key: written.record for key, written in publishers.wanted.items() if written.record is not None}
    wanted = {key: (record["number"], record["model"]) for key, record in newest.items()}
    found = {key: (body["number"], body["model"]) for key, (_, body) in search.found.items()}
    differences = json.loads(verified.stdout)["differences"]
    assert ((8, False) if odd else (0, True)) == (verified.exit_code, wanted == found), differences
    assert {"A", "B"} == {model["digest"] for _, model in wanted.values()}
    assert max(search.sizes) > search.max_bytes, "none was too large"
    assert odd or read_all(stage.topics.bootstrap_servers, stage.letters) == []
