"""The leg `rebalance`: gaps, the parts of a change, its claims; once with real workers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace

import pytest
from support.benched import forked
from support.reading import read_all

from tools.bench import child
from tools.bench.bench import Bench
from tools.bench.legs.rebalance import joining
from tools.bench.legs.rebalance.joining import Change, Span, join_and_leave, longest_gap
from tools.bench.legs.rebalance.parts import JOINING, LEAVING, parts_of, still_s
from tools.bench.legs.rebalance.report import outcome
from tools.bench.legs.scale.crew import Crew
from tools.bench.moments import Moment
from tools.kafka import Cluster


def _moments(*told: tuple[str, float], partitions: Sequence[int] = (1,)) -> list[Moment]:
    return [Moment(what, at_s, list(partitions)) for what, at_s in told]


NOTHING = Change("nothing", 0.1, 0.3, 0.4, 0.0, [], [], 0)
JOIN = Change(
    "joins",
    0.3,
    0.5,
    0.6,
    0.0,
    [
        *_moments(("joining", 5.0), ("assigning", 5.5), ("assigned", 5.5), partitions=()),
        *_moments(("assigning", 6.0), ("assigned", 6.25), ("record", 6.5)),
    ],
    [*_moments(("heard", 5.25), partitions=()), *_moments(("revoking", 5.5), ("revoked", 5.75))],
    0,
)
LEAVE = Change(
    "leaves",
    0.3,
    1.0,
    0.6,
    7.0,
    _moments(("draining", 7.25), ("drained", 7.5), ("leaving", 7.75), ("left", 8.0)),
    [*_moments(("heard", 8.5), partitions=()), *_moments(("assigning", 8.75), ("assigned", 9.0), ("record", 9.5))],
    0,
)


def test_longest_gap_is_between_neighbours_within_the_span() -> None:
    """The order of the times does not matter."""
    assert 3.0 == longest_gap([9.0, 1.0, 2.0, 5.0, 6.0], Span(0.0, 7.0))


def test_gap_that_only_touches_the_span_counts_in_full() -> None:
    """A pause that starts before the event or ends after it counts in full."""
    assert 8.0 == longest_gap([0.0, 1.0, 9.0, 10.0], Span(5.0, 6.0))


def test_gap_outside_the_span_does_not_count() -> None:
    """A gap outside the span belongs to another event."""
    assert 1.0 == longest_gap([0.0, 1.0, 2.0, 9.0], Span(0.0, 1.5))
    assert 0.0 == longest_gap([], Span(0.0, 1.5))


def test_each_part_of_joining_ends_where_the_next_one_begins() -> None:
    """The newcomer's first assignment is empty and counts as no part."""
    expected = {"heard": 0.25, "first": 0.25, "publish": 0.25, "second": 0.25, "start": 0.25, "record": 0.25}
    assert expected == parts_of(JOIN)
    assert 0.75 == still_s(JOIN)


def test_each_part_of_leaving_ends_where_the_next_one_begins() -> None:
    """From the request to stop to the first record of the new owner."""
    expected = dict.fromkeys(("stop", "drain", "close", "leave"), 0.25)
    assert expected | {"heard": 0.5, "first": 0.25, "start": 0.25, "record": 0.5} == parts_of(LEAVE)
    assert 2.0 == still_s(LEAVE)


def test_without_its_moments_a_part_is_not_made_up() -> None:
    """A member that nobody told of a rebalance, because it rejoined by itself, heard nothing."""
    deaf = replace(JOIN, others=[moment for moment in JOIN.others if moment.what != "heard"])
    assert "heard" not in parts_of(deaf)
    assert still_s(replace(JOIN, own=[])) is None


def test_what_counts_is_the_longest_gap_beyond_the_usual() -> None:
    """0.2 s more than usual are within the aim, 0.7 s are not."""
    claims = outcome({1: [NOTHING, JOIN, LEAVE]}).claims
    assert [True, False] == [claim.held for claim in claims]


@pytest.mark.broker
def test_a_worker_joins_and_leaves_under_light_load_without_loss(
    broker: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every headline is there once, and every part of both changes is measured."""
    monkeypatch.setattr(child, "launch", forked)
    monkeypatch.setattr(joining, "RATE_PER_S", 16.0)
    bench = Bench(1, quick=True, say=print)
    vars(bench)["cluster"] = broker
    with ExitStack() as closing:
        crew = Crew(bench, closing, 1, module="tools.bench.timed_worker")
        changes = join_and_leave(bench, crew)
        seen = Counter(message.key() for message in read_all(broker.bootstrap_servers, crew.topics.output))
        sent = Counter(message.key() for message in read_all(broker.bootstrap_servers, crew.topics.input))
    assert sent == seen
    _, joined, left = changes
    assert set(JOINING) == parts_of(joined).keys()
    assert set(LEAVING) == parts_of(left).keys()
    assert 0 < joined.longest_partition_gap_s < 60
    assert 0 < left.longest_partition_gap_s < 60
