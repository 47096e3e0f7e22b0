"""The input is enriched again, exactly once, beside the live workers and without touching anything of theirs."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from commands.cli_runner import run
from kafka.harness import (
    QUICK_FAILOVER,
    Sent,
    as_sent,
    assert_exactly_once,
    publish,
    short_articles,
)
from support.forked import Forked
from support.operating import delete_group, expel
from support.patience import PATIENCE_S, wait_until
from support.reading import committed_and_ends, read_all
from support.stub_worker import STUB_WORKER
from support.topics import Topics, make_topics

from enricher.errors import SettingsError
from tools.kafka import Cluster

pytestmark = pytest.mark.broker

Places = Mapping[tuple[int, int], Sent]


@dataclass(frozen=True, slots=True)
class Replay:
    """The topics of a replay, which is a group of its own, and of the live workers that it runs beside."""

    live: Topics
    own: Topics

    @property
    def options(self) -> Sequence[str]:
        """Its topics and group."""
        return ("--into", self.own.output, "--dead-letters", self.own.dead_letters, "--group", self.own.group)

    def started(self, *, instance: str = "replay-0", log: Path | None = None, rate: float = 0) -> Forked:
        """A process of it, with a stub for the model. `rate`: articles per second, 0 for as many as it can."""
        own = {"ENRICHER_KAFKA__INSTANCE": instance, "ENRICHER_WORKER__MAX_ARTICLES_PER_SECOND": str(rate)}
        environment = self.live.environment | QUICK_FAILOVER | own
        return Forked([STUB_WORKER, "replay", *self.options], {**os.environ, **environment}, log)

    def outputs(self) -> int:
        """How many records it has written."""
        return len(read_all(self.own.bootstrap_servers, self.own.output))

    def has_more_than(self, outputs: int) -> bool:
        """Whether it has written more records than these."""
        return self.outputs() > outputs

    def assert_holds(self, places: Places) -> None:
        """Exactly these inputs have one record each, and nothing of the live workers has moved."""
        assert_exactly_once(read_all(self.own.bootstrap_servers, self.own.output), places)
        assert [] == read_all(self.own.bootstrap_servers, self.own.dead_letters)
        assert [] == read_all(self.live.bootstrap_servers, self.live.output)
        positions = committed_and_ends(self.live.bootstrap_servers, self.live.group, self.live.input)
        assert all(committed < 0 for committed, _ in positions.values())


@pytest.fixture
def replay(broker: Cluster) -> Replay:
    """A replay that has not begun."""
    return Replay(make_topics(broker.bootstrap_servers), make_topics(broker.bootstrap_servers))


def fill(topics: Topics, count: int, seed: int = 1) -> dict[tuple[int, int], Sent]:
    """Short articles; returns where each is."""
    articles = [article | {"id": f"{seed}-{article['id']}"} for article in short_articles(count, seed)]
    return publish(topics.bootstrap_servers, topics.input, map(as_sent, articles))


def test_killed_processes_replay_the_topic_once(replay: Replay) -> None:
    """Two processes share it, each is killed and started again; one that begins when all is done ends at once."""
    places = fill(replay.live, 120)
    for kill in range(2):
        with replay.started(rate=30) as first, replay.started(instance="replay-1", rate=30) as second:
            wait_until(partial(replay.has_more_than, replay.outputs()), PATIENCE_S, "some records")
            (first, second)[kill].kill()
        expel(replay.own.bootstrap_servers, replay.own.group)
    for _ in range(2):
        with replay.started() as first, replay.started(instance="replay-1") as second:
            assert (0, 0) == (first.wait(PATIENCE_S), second.wait(PATIENCE_S))
        replay.assert_holds(places)


def test_a_replay_that_is_stopped_says_so_and_goes_on(replay: Replay, tmp_path: Path) -> None:
    """A pod that is evicted has not finished its job."""
    places, log = fill(replay.live, 80), tmp_path / "log"
    with replay.started(rate=10, log=log) as process:
        wait_until(lambda: replay.outputs() > 0, PATIENCE_S, "some records")
        process.terminate()
        assert 128 + signal.SIGTERM == process.wait(PATIENCE_S)
    assert "stopped; start it again to go on" in log.read_text("utf-8")
    with replay.started() as process:
        assert 0 == process.wait(PATIENCE_S)
    replay.assert_holds(places)


def test_a_replay_whose_offsets_are_gone_does_not_write_twice(replay: Replay, tmp_path: Path) -> None:
    """They expire while a group has no member for long; the worker refuses, and says what to set.

    The settings of the live workers are refused there: what these have written says nothing about the replay.
    """
    places, log = fill(replay.live, 8), tmp_path / "log"
    with replay.started() as process:
        assert 0 == process.wait(PATIENCE_S)
    delete_group(replay.own.bootstrap_servers, replay.own.group)
    with replay.started(log=log) as process:
        assert SettingsError.exit_code == process.wait(PATIENCE_S)
    command = ("offsets", "set", replay.own.group, replay.live.input, "--at", "behind-outputs")
    assert f"enricher {' '.join(command)}" in log.read_text("utf-8")
    places |= fill(replay.live, 8, seed=2)
    refusal = run(*command, env=replay.live.environment).exception
    assert isinstance(refusal, SettingsError)
    assert f"set ENRICHER_KAFKA__GROUP_ID={replay.own.group}" in str(refusal)
    own = replay.own.environment | {"ENRICHER_KAFKA__INPUT_TOPIC": replay.live.input}
    assert 0 == run(*command, env=own).exit_code
    with replay.started() as process:
        assert 0 == process.wait(PATIENCE_S)
    replay.assert_holds(places)


@pytest.mark.parametrize(
    ("option", "live", "message"),
    [
        ("--group", "group", "is the group of the live workers"),
        ("--into", "output", "is a topic of the live workers"),
        ("--dead-letters", "dead_letters", "is a topic of the live workers"),
        ("--into", "input", "is an input topic"),
    ],
)
def test_what_belongs_to_the_live_workers_is_refused(replay: Replay, option: str, live: str, message: str) -> None:
    """Before anything is connected: their consumers would read records twice, or they themselves miss articles."""
    result = run("replay", *replay.options, option, getattr(replay.live, live), env=replay.live.environment)
    assert isinstance(result.exception, SettingsError)
    assert message in str(result.exception)
