"""A worker with four tasks, or with two topics: each article gets what all tasks say, exactly once, whatever happens."""

from __future__ import annotations

import pytest
from loop.fake_model import article_value
from loop.fake_schemas import with_schema
from loop.fake_tasks import FOUR_TASKS, VENOM, expected
from loop.test_worker_simulation import SchemaSimulation, Simulation
from loop.world import INVALID, LONG, POISONED, SHORT, UNTOKENIZABLE, World
from support.properties import seeds

from enricher.worker.rules import assembly

GERMAN = article_value(
    "de: Umweltministerin kommt", "die Umweltministerin Anna Meier spricht " + "in Braunschweig " * 6
)
FRENCH = article_value("fr: Ada", "Ada est une femme")
NO_TASK = article_value("xx: Ada", "no task is for this poison and venom")
VENOMOUS = article_value("bad", f"some {VENOM} " + "and words after it " * 5)
VENOMOUS_FRENCH = article_value("fr: bad", f"no task of this language reads {VENOM}")
VALUES = (
    *(SHORT, SHORT, SHORT, LONG, None, INVALID, UNTOKENIZABLE, POISONED),
    *(GERMAN, GERMAN, FRENCH, NO_TASK, VENOMOUS, VENOMOUS_FRENCH),
)


class TaskSimulation(Simulation):
    """The same cruelty, with four tasks."""

    values = VALUES
    setup = FOUR_TASKS


class TaskSchemaSimulation(SchemaSimulation):
    """Articles wait for schemas before their language is known."""

    values = (*VALUES, *(with_schema(name, SHORT) for name in "abcdef"), with_schema("a", LONG))
    setup = FOUR_TASKS


@pytest.mark.parametrize("seeds", seeds(quick=6, plain=30, every=400))
def test_every_article_has_exactly_the_output_of_its_tasks(seeds: range) -> None:
    """At every moment and in the end: with failures of some heads, forgetting, rebalances, recoveries, little memory."""
    for seed in seeds:
        assert TaskSimulation(seed).run().found == set(), f"seed {seed}"


@pytest.mark.parametrize("seeds", seeds(quick=3, plain=10, every=60))
def test_articles_that_wait_for_schemas_have_it_too(seeds: range) -> None:
    """Nobody knows their tasks while they wait."""
    for seed in seeds:
        assert TaskSchemaSimulation(seed).run().found == set(), f"seed {seed}"


def test_a_worker_that_ignores_languages_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control: every head answers for articles of all tasks' languages, and the judge finds it wrong."""
    monkeypatch.setattr(assembly, "is_for", lambda _head, article: article.language != "xx")
    assert any(wrong.startswith("wrong") for seed in range(10) for wrong in TaskSimulation(seed).run().found)


def run_all(*values: bytes | None) -> World:
    """A world with these articles, all done, judged at each step."""
    world = World(partitions=1, setup=FOUR_TASKS)
    world.put(*values)
    process = world.start().joined()
    world.steps(process, until=world.done, at_most=100_000)
    return world


def test_tasks_are_counted_when_they_are_committed() -> None:
    """What ran, was skipped for the language or failed."""
    world = run_all(SHORT, GERMAN, FRENCH, NO_TASK, POISONED, VENOMOUS, INVALID, None)
    [process] = world.started
    counters = process.counters
    assert ["names", "length", "wide", "share"] == [*counters.tasks]
    assert {"ran": 3, "skipped": 1, "failed": 2} == counters.tasks["names"]
    assert {"ran": 1, "skipped": 3, "failed": 2} == counters.tasks["length"]
    assert {"ran": 1, "skipped": 3, "failed": 2} == counters.tasks["wide"]
    names = sum(len(contents[0]) for contents in contents_of(SHORT, FRENCH, GERMAN)) - 8
    assert names == counters.labels["names", "NAME"]
    assert {("length", "long"), ("length", "short")} & set(counters.labels)


def contents_of(*values: bytes) -> list[tuple[list[object], ...]]:
    """What the outputs of these articles must hold."""
    return [expected(value)[1] for value in values]  # type: ignore[misc]


def test_nothing_of_an_article_without_a_task_goes_to_the_tokenizer() -> None:
    """Its record is empty."""
    world = run_all(FRENCH, NO_TASK)
    [process] = world.started
    assert 1 == sum(len(call) for call in process.tokenizer.submitted)


class TopicSimulation(Simulation):
    """The same cruelty, with one task, on two topics in the order of their priority."""

    topics = ("articles.now", "articles")


@pytest.mark.parametrize("seeds", seeds(quick=6, plain=30, every=1_000))
def test_every_article_of_both_topics_has_exactly_one_output(seeds: range) -> None:
    """At every moment the visible outputs are those of the inputs below the committed offsets; in the end, all of them."""
    for seed in seeds:
        assert TopicSimulation(seed).run().found == set(), f"seed {seed}"
