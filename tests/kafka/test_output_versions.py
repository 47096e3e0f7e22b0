"""Versions of real outputs: the same for every attempt at an input, and higher for a newer input or a higher generation."""

from __future__ import annotations

import os
import signal
from collections import defaultdict

import pytest
from kafka.harness import QUICK_FAILOVER, Sent, as_sent, headers_of, publish, short_articles, source_of, worker
from support.forked import Forked
from support.patience import PATIENCE_S
from support.reading import read_all
from support.stub_worker import STUB_WORKER
from support.topics import Topics, make_topics
from verify.pair import verified

pytestmark = pytest.mark.broker

QUICK = {
    **QUICK_FAILOVER,
    "ENRICHER_WORKER__MAX_IN_FLIGHT_ARTICLES": "10",  # so that there are transactions enough to die in the third
}
Versions = dict[tuple[int, int], list[int]]


def versions_in(topics: Topics, isolation: str = "read_committed") -> Versions:
    """By partition and offset of the input, the versions of all outputs."""
    found: Versions = defaultdict(list)
    for message in read_all(topics.bootstrap_servers, topics.output, isolation):
        found[source_of(message)].append(int(headers_of(message)["enricher.version"] or b""))
    return found


def test_attempts_share_a_version_and_a_replay_replaces_the_same_input(
    topics: Topics,
) -> None:
    """The worker is killed before it commits, and its successor writes the same again; then another model does."""
    again = make_topics(topics.bootstrap_servers)
    articles = short_articles(40)
    inputs = [as_sent(each) for each in (*articles, *articles[:10])] + [Sent(b"short-3", None)]
    places = publish(topics.bootstrap_servers, topics.input, inputs)
    environment = topics.environment | QUICK | {"ENRICHER_KAFKA__EPOCH": "2"}
    with worker(environment, "--until-caught-up", crash_at="offsets-sent:3") as process:
        assert -signal.SIGKILL == process.wait(PATIENCE_S)
    with worker(environment, "--until-caught-up", stub=True) as process:
        assert 0 == process.wait(PATIENCE_S)

    attempts, committed = versions_in(topics, "read_uncommitted"), versions_in(topics)
    assert places.keys() == committed.keys()
    assert any(len(versions) > 1 for versions in attempts.values()), "nothing was written twice"
    assert {(place, (2 << 55 | place[1] << 12,)) for place in places} == {
        (place, tuple(set(versions))) for place, versions in attempts.items()
    }
    report = verified(topics)
    assert report.holds
    assert 0 == report.facts["records without a version"]

    chosen = ("--into", again.output, "--dead-letters", again.dead_letters, "--group", again.group)
    program = [STUB_WORKER, "replay", *chosen]
    with Forked(program, {**os.environ, **environment, "ENRICHER_MODEL__GENERATION": "1"}) as process:
        assert 0 == process.wait(PATIENCE_S)
    for (partition, offset), [version] in versions_in(again).items():
        assert committed[partition, offset] < [version]
        assert [version] < committed.get((partition, offset + 1), [2**63])
