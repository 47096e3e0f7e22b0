"""When the loop waits, where, for how long, and when it gives up waiting."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest
from loop.fake_clock import TICK_S
from loop.world import LIMITS, LONG, RULES, SHORT, World

from enricher.errors import Stalled
from enricher.worker.records import Release
from enricher.worker.rules.load import Load


def test_publishing_keeps_its_interval() -> None:
    """Between the beginnings of two transactions lies at least the interval, however many articles are ready."""
    world = World()
    process = world.start().joined()
    random = Random(1)
    for _ in range(50):
        world.clock.after(random.random() * 4, lambda: world.put(SHORT))
    world.steps(process, until=lambda: world.clock() > 4 and world.done())
    gaps = [
        later - earlier for earlier, later in pairwise(process.sink.published_s[2:])
    ]  # the first one commits where empty partitions stand, the second one counts the attempt
    assert len(gaps) > 3
    assert min(gaps) >= LIMITS.publish_interval_s


def test_at_low_load_no_article_waits_for_company_or_the_interval() -> None:
    """An idle thread takes it at once, and its transaction begins as soon as its batch is back."""
    world = World()
    process = world.start(limits=replace(LIMITS, publish_share=0.5)).joined()
    world.steps(process, until=lambda: world.clock() > 4)
    world.clock.after(1.0, lambda: world.put(SHORT))
    began_s = world.clock() + 1.0
    world.steps(process, until=lambda: world.outputs() != [])
    tokenizer_s, model_s, transaction_s = 16 * TICK_S, 64 * TICK_S, 4 * TICK_S
    assert world.clock() - began_s <= tokenizer_s + model_s + transaction_s


def test_the_end_of_a_backlog_does_not_wait_for_the_interval() -> None:
    """The load is still near its highest, but nothing is in progress: the last articles go out at once."""
    world = World()
    limits = replace(LIMITS, publish_share=0.5, publish_interval_s=64.0, max_in_flight=4_000)
    process = world.start(limits=limits).joined()
    world.steps(process, until=lambda: world.clock() > 4)
    process.worker.pacing.load = Load(threads=1, now_s=world.clock() - 60.0)
    process.worker.pacing.load.note(world.clock(), running=1, waited_s=0.0)
    world.put(SHORT)
    began_s = world.clock()
    world.steps(process, until=world.done)
    assert process.worker.pacing.load.busy > 0.5, "otherwise the load would have allowed it"
    assert world.clock() - began_s < 0.2


def test_what_is_due_does_not_wait_for_the_end_of_an_idle_wait() -> None:
    """With a long idle wait a single article still goes to the device after `max_wait`, and out at the next transaction."""
    world = World()
    process = world.start(limits=replace(LIMITS, idle_wait_s=64.0)).joined()
    process.worker.step()
    world.clock.after(1.0, lambda: world.put(SHORT))
    world.steps(process, until=lambda: world.outputs() != [])
    slowest_s = 16 * TICK_S + RULES.max_wait_s + 64 * TICK_S + LIMITS.publish_interval_s + 2 * TICK_S
    assert world.clock() <= 1.0 + slowest_s


def test_with_nothing_to_do_the_loop_waits_in_the_poll() -> None:
    """An idle worker makes as many turns as its longest wait allows, and spends them in the source's poll."""
    world = World()
    process = world.start().joined()
    process.worker.step()
    turns = world.steps(process, until=lambda: world.clock() >= 10)
    assert turns <= 10 / LIMITS.idle_wait_s + 2
    assert process.wakeup.waits_s == []
    assert all(wait_s == LIMITS.idle_wait_s for _, wait_s in process.source.polls[1:])


def test_with_work_under_way_the_loop_waits_for_the_wakeup() -> None:
    """While the device works nobody waits in the poll, and the loop turns only for results and for new articles."""
    world = World()
    process = world.start(limits=replace(LIMITS, engine_timeout_s=1e9)).joined()
    world.put(SHORT)
    world.steps(process, until=lambda: process.engine.busy > 0)
    process.engine.hangs = True
    began_s, polls = world.clock(), len(process.source.polls)
    turns = world.steps(process, until=lambda: world.clock() >= began_s + 2)
    assert all(wait_s == 0 for _, wait_s in process.source.polls[polls:])
    assert max(process.wakeup.waits_s[1:]) <= LIMITS.poll_interval_s
    assert turns <= 2 / (LIMITS.poll_interval_s / 4) + 2


@pytest.mark.parametrize("seed", range(3))
def test_the_loop_never_spins(seed: int) -> None:
    """Every turn either moves something or lets time pass."""
    world = World(seed)
    process = world.start(limits=replace(LIMITS, max_in_flight=5)).joined()
    for index in range(40):
        world.clock.after(index * 100 * TICK_S, lambda: world.put(SHORT, LONG))
    counters, tokenizer = process.counters, process.tokenizer

    def moved() -> tuple[float, ...]:
        done = counters.read, counters.batches, counters.transactions
        return (world.clock(), *done, tokenizer.busy, len(tokenizer.submitted))

    idle, after = 0, moved()
    while world.clock() < 4.5 or not world.done():
        before = after
        process.worker.step()
        after = moved()
        idle += before == after
    # A result that came in while a transaction was under way: its wakeup is set in the turn that takes it anyway.
    assert idle <= 2 * len(process.engine.submitted)


@pytest.mark.parametrize("what", ["model", "tokenizer"])
def test_a_device_or_tokenizer_that_hangs_is_a_stall(what: str) -> None:
    """Nothing comes back within the bound while something is with it: the process must end, or hold its partitions."""
    world = World()
    process = world.start(limits=replace(LIMITS, engine_timeout_s=4.0)).joined()
    world.put(SHORT)
    (process.engine if what == "model" else process.tokenizer).hangs = True
    with pytest.raises(Stalled, match=what):
        world.steps(process, until=lambda: world.clock() > 5)
    assert world.clock() >= 4


def test_a_device_that_works_for_long_is_no_stall() -> None:
    """Batch after batch for longer than the bound is progress, and so is a batch after a long rest."""
    world = World()
    process = world.start(limits=replace(LIMITS, engine_timeout_s=0.25)).joined()
    for index in range(40):
        world.clock.after(index * 0.0625 + (4.0 if index > 20 else 0), lambda: world.put(LONG, LONG))
    world.steps(process, until=lambda: world.clock() > 7 and world.done())


def test_a_transaction_that_waits_for_the_brokers_is_no_stall(monkeypatch: pytest.MonkeyPatch) -> None:
    """The device and the tokenizer have long finished what they had when it began: nobody has collected it yet."""
    world = World()
    process = world.start().joined()
    publish, waited = process.sink.publish, list[int]()

    def wait_and_publish(release: Release) -> object:
        waited.append(process.engine.busy + process.tokenizer.busy)
        world.clock.sleep(LIMITS.engine_timeout_s + 1)
        return publish(release)

    monkeypatch.setattr(process.sink, "publish", wait_and_publish)
    for index in range(40):
        world.clock.after(index * LIMITS.engine_timeout_s / 10, lambda: world.put(SHORT, LONG))
    world.steps(process, until=lambda: len(world.outputs()) == 80)
    assert any(waited)


@pytest.mark.parametrize("pool", ["tokenizer", "engine"])
def test_work_that_goes_missing_is_a_stall(pool: str) -> None:
    """An article that nobody has any more would hold its partition for ever: it is noticed in the same turn."""
    world = World()
    process = world.start().joined()
    world.put(SHORT)
    (process.tokenizer if pool == "tokenizer" else process.engine).loses = True
    with pytest.raises(Stalled, match="in flight"):
        world.steps(process, until=lambda: world.clock() > 1)
