"""Two topics in the order of their priority: a backlog of the first goes first, and only that holds the second."""

from __future__ import annotations

import pytest
from loop.fake_schemas import with_schema
from loop.fake_sink import OUTPUT, Output
from loop.test_worker_simulation import Simulation
from loop.world import LIMITS, SHORT, Process, World
from support.properties import seeds

NOW, LATER = TOPICS = ("articles.now", "articles")


def working(world: World, name: str = "worker-0") -> Process:
    """A worker that is a member."""
    return world.start(name).joined()


def done(world: World, topic: str) -> int:
    """How many outputs of a topic's records can be read."""
    partitions = [each.number for each in world.log.partitions if each.topic == OUTPUT]
    outputs = [each for number in partitions for each in world.outputs(partition=number)]
    return sum(isinstance(each, Output) and each.source.topic == topic for each in outputs)


def test_a_backlog_of_the_first_topic_goes_first() -> None:
    """Of the second only what was read before that shows; it follows as soon as the first is done."""
    world = World(topics=TOPICS)
    process = working(world)
    for topic in TOPICS:
        for partition in range(2):
            world.put(*[SHORT] * 500, topic=topic, partition=partition)
    world.steps(process, until=lambda: done(world, NOW) == 1_000, at_most=20_000)
    assert done(world, LATER) < 250
    world.steps(process, until=world.done, at_most=20_000)
    assert 1_000 == done(world, LATER)


def test_partitions_of_another_member_hold_nothing() -> None:
    """A worker that has only partitions of the second topic works, whatever waits in the first."""
    world = World(partitions=1, topics=TOPICS)
    members = [working(world, f"worker-{number}") for number in range(2)]
    world.steps(*members, until=lambda: all(each.tracker.partitions for each in members))
    world.put(*[SHORT] * 300, topic=NOW)
    world.put(*[SHORT] * 300, topic=LATER)
    (mine,) = (each for each in members if {LATER} == {partition.topic for partition in each.tracker.partitions})
    world.steps(mine, until=lambda: done(world, LATER) == 300, at_most=20_000)
    assert (0, 0) == (done(world, NOW), mine.source.holds)


def test_articles_that_wait_for_schemas_hold_nothing() -> None:
    """While the registry is away the first topic cannot go on, and the second does."""
    world = World(topics=TOPICS)
    process = working(world)
    world.registry.away = True
    world.put(*[with_schema("a", SHORT)] * 10 * LIMITS.max_in_flight, topic=NOW)
    world.put(*[SHORT] * 300, topic=LATER)
    world.steps(process, until=lambda: done(world, LATER) == 300, at_most=20_000)
    assert 0 == done(world, NOW)


class TopicSimulation(Simulation):
    """The same cruelty, on two topics."""

    topics = TOPICS


@pytest.mark.parametrize("seeds", seeds(quick=6, plain=30, every=1_000))
def test_every_article_of_both_topics_has_exactly_one_output(seeds: range) -> None:
    """At every moment the visible outputs are those of the inputs below the committed offsets; in the end, all of them."""
    for seed in seeds:
        assert TopicSimulation(seed).run().found == set(), f"seed {seed}"
