"""A worker with two passes: every article gets what all of its tasks say, exactly once, whatever happens meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
from loop.fake_clock import TICK_S
from loop.fake_model import article_value, with_room_for
from loop.fake_schemas import with_schema
from loop.fake_sink import DEAD_LETTERS
from loop.fake_tasks import TWO_PASSES, VENOM, expected, infer_passes
from loop.test_worker_killing_record import killed, lives_until_done
from loop.test_worker_simulation import SchemaSimulation, Simulation
from loop.world import INVALID, KILLER, LIMITS, LONG, POISONED, SHORT, UNTOKENIZABLE, World
from support.seeds import seeds

from enricher.worker.records import Batch, BatchResult, EnrichedRecord
from enricher.worker.rules import long_articles
from enricher.worker.rules.parts import Found
from enricher.worker.rules.passes import PassScheduler

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


class PassSimulation(Simulation):
    """The same cruelty, with two passes."""

    values = VALUES
    setup = TWO_PASSES


class PassSchemaSimulation(SchemaSimulation):
    """Articles wait for schemas before they have parts."""

    values = (*VALUES, *(with_schema(name, SHORT) for name in "abcdef"), with_schema("a", LONG))
    setup = TWO_PASSES


@pytest.mark.parametrize("seeds", seeds(quick=6, plain=30, every=400))
def test_every_article_has_exactly_the_output_of_its_tasks(seeds: range) -> None:
    """At every moment and in the end: with failures in either pass, forgetting, rebalances, recoveries, little memory."""
    for seed in seeds:
        assert PassSimulation(seed).run().found == set(), f"seed {seed}"


@pytest.mark.parametrize("seeds", seeds(quick=3, plain=10, every=60))
def test_articles_that_wait_for_schemas_have_it_too(seeds: range) -> None:
    """A ticket that waits has no parts yet."""
    for seed in seeds:
        assert PassSchemaSimulation(seed).run().found == set(), f"seed {seed}"


def test_a_worker_that_publishes_before_its_last_part_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control: the ticket is finished with its first part, and the same judge finds it wrong."""

    def join_at_once(found: Found, pass_index: int, record: EnrichedRecord) -> EnrichedRecord:
        return found.splitter.join({pass_index: record})

    monkeypatch.setattr(Found, "add", join_at_once)
    assert any(wrong.startswith("wrong") for seed in range(10) for wrong in PassSimulation(seed).run().found)


def run_all(*values: bytes | None, infer: Callable[[Batch], BatchResult] = infer_passes) -> World:
    """A world with these articles, all done, judged at each step."""
    world = World(partitions=1, setup=TWO_PASSES)
    world.put(*values)
    process = world.start(infer=infer)
    process.source.open(process.worker)
    world.steps(process, until=world.done, at_most=100_000)
    return world


def test_a_window_that_fails_in_one_pass_costs_that_article_alone() -> None:
    """The one with the failed window is a dead letter, whichever pass it is; the others have the answers of both."""
    world = run_all(*[SHORT, POISONED, SHORT, VENOMOUS, SHORT, GERMAN])
    assert (4, 2) == (len(world.outputs()), len(world.outputs(DEAD_LETTERS)))


def test_tasks_are_counted_when_they_are_committed() -> None:
    """What ran, was skipped for the language or failed; windows, tokens and time are those of the task's pass."""
    world = run_all(SHORT, GERMAN, FRENCH, NO_TASK, POISONED, VENOMOUS, INVALID, None)
    [process] = world.started
    tasks = process.counters.tasks
    assert ["names", "length", "share", "wide"] == sorted(tasks, key=["names", "length", "share", "wide"].index)
    assert {"ran": 3, "skipped": 1, "failed": 1} == tasks["names"].outcomes
    assert {"ran": 1, "skipped": 3, "failed": 1} == tasks["length"].outcomes
    assert {"ran": 1, "skipped": 3, "failed": 1} == tasks["wide"].outcomes
    assert tasks["names"].windows == tasks["share"].windows
    both = tasks["names"], tasks["wide"]
    assert process.counters.windows == sum(each.windows for each in both)
    assert process.counters.real_tokens == sum(each.real_tokens for each in both)
    batches = [batch.pass_index for batch in process.engine.submitted]
    assert [batches.count(0) * TICK_S, 2 * batches.count(1) * TICK_S] == [each.busy_s for each in both]
    names = sum(len(contents[0]) for contents in contents_of(SHORT, FRENCH, GERMAN)) - 8
    assert names == process.counters.labels["names", "NAME"]
    assert {("length", "long"), ("length", "short")} & set(process.counters.labels)


def contents_of(*values: bytes) -> list[tuple[list[object], ...]]:
    """What the outputs of these articles must hold."""
    return [expected(value)[1] for value in values]  # type: ignore[misc]


@pytest.mark.parametrize("slow", [0, 1, None])
def test_a_slow_pass_does_not_starve_the_other(slow: int | None) -> None:
    """Under a backlog, batches of both go all the time, the oldest window first, though one takes 20 times as long."""
    world = World(partitions=2, setup=TWO_PASSES)
    world.put(*[GERMAN] * 50, partition=0)
    world.put(*[FRENCH] * 50, partition=1)
    process = world.start()
    process.engine.slowness = lambda batch: 20 if batch.pass_index == slow else 1
    process.source.open(process.worker)
    world.steps(process, until=world.done, at_most=100_000)
    order = [batch.pass_index for batch in process.engine.submitted]
    for index in (0, 1):
        places = [place for place, each in enumerate(order) if each == index]
        assert max(after - before for before, after in pairwise(places)) < 20
    oldest_s = [min(window.arrived_s for window in batch.windows) for batch in process.engine.submitted]
    assert all(later > earlier - 64 * TICK_S for earlier, later in pairwise(oldest_s))


def test_the_bounds_hold_over_all_passes() -> None:
    """Records in flight count once; queued tokens of both passes together exceed their bound by one article at most."""
    world = World(partitions=1, setup=TWO_PASSES)
    world.put(*[LONG] * 40)
    process = world.start()
    process.source.open(process.worker)
    seen = []

    def done() -> bool:
        seen.append((process.tracker.in_flight, process.intake.scheduler.queued_tokens))
        return world.done()

    world.steps(process, until=done, at_most=100_000)
    articles, tokens = map(max, zip(*seen, strict=True))
    assert articles <= LIMITS.max_in_flight
    longest = 3 * len(LONG.split())
    assert 0 < tokens < LIMITS.max_queued_tokens + LIMITS.max_in_flight * longest
    snapshot = process.worker.snapshots.read()
    assert (0, 0, 0) == (snapshot.in_flight_articles, snapshot.queued_windows, snapshot.queued_tokens)


def test_too_little_memory_in_one_pass_lowers_the_budget_of_that_pass_alone() -> None:
    """The other one keeps full batches."""

    def infer(batch: Batch) -> BatchResult:
        return (with_room_for(14, infer_passes) if batch.pass_index else infer_passes)(batch)

    world = run_all(*[SHORT] * 40, infer=infer)
    [process] = world.started
    scheduler = process.intake.scheduler
    assert isinstance(scheduler, PassScheduler)
    assert scheduler.of_pass(0).max_batch_tokens == 40
    assert scheduler.of_pass(1).max_batch_tokens <= 14
    assert scheduler.max_batch_tokens == 40


@pytest.fixture
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_articles, "LONG_BYTES", 1_000)
    monkeypatch.setattr(long_articles, "IN_PROGRESS_BYTES", 20_000)


@pytest.mark.usefixtures("_small")
def test_long_articles_go_through_both_passes_and_let_others_past() -> None:
    """Other partitions are done while they are in progress; then they are whole."""
    dense = article_value("Title", "word " * 1_000 + "Name")
    world = World(setup=TWO_PASSES)
    world.put(*[dense] * 3, partition=0)
    world.put(*[SHORT] * 60, partition=1)
    process = world.start()
    process.source.open(process.worker)
    world.steps(process, until=lambda: len(world.outputs(partition=1)) == 60, at_most=100_000)
    assert len(world.outputs(partition=0)) < 3
    world.steps(process, until=world.done, at_most=200_000)
    assert (3, False) == (len(world.outputs(partition=0)), process.intake.busy)


@pytest.mark.usefixtures("_small")
@pytest.mark.parametrize("turns", [1, 10, 30, 100])
def test_long_articles_survive_being_forgotten_at_any_time(turns: int) -> None:
    """In either pass; a dead letter of one pass ends the work of the other."""
    dense = article_value("Title", "word " * 500 + "Name")
    world = World(partitions=1, setup=TWO_PASSES)
    world.put(SHORT, dense, article_value("bad", "word " * 300 + VENOM), dense, SHORT)
    process = world.start()
    process.source.open(process.worker)
    for _ in range(turns):
        process.worker.step()
    process.source.expel()
    world.steps(process, until=world.done, at_most=200_000)
    assert (4, 1) == (len(world.outputs()), len(world.outputs(DEAD_LETTERS)))


def test_an_article_has_parts_only_of_passes_that_it_needs() -> None:
    """Nothing of an article without any task goes to the tokenizer."""
    world = run_all(FRENCH, NO_TASK)
    [process] = world.started
    assert [0] == [part.pass_index for call in process.tokenizer.submitted for part in call]
    assert all(batch.pass_index == 0 for batch in process.engine.submitted)


def test_an_article_that_kills_the_process_is_the_only_one_dead_lettered_for_it() -> None:
    """Taken alone, with all of its branches; what another pass left queued is not taken for the next article's."""
    world = World(partitions=1, setup=TWO_PASSES)
    world.put(SHORT, GERMAN, KILLER, SHORT, VENOMOUS, SHORT)
    assert lives_until_done(world) <= LIMITS.max_deaths_at_offset + 1 + 2 + 1
    assert [2] == [offset for _, offset in killed(world)]
    assert (4, 2) == (len(world.outputs()), len(world.outputs(DEAD_LETTERS)))
