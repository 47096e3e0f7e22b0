"""Back-pressure: every queue has a bound, a source without capacity is paused, and long articles let others pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from loop.fake_model import article_value, read
from loop.world import LIMITS, SHORT, Process, World

from enricher.worker.loop import intake as intake_module
from enricher.worker.loop import queues
from enricher.worker.loop.pacing import LoopLimits

WORDS = 40
ARTICLE = article_value("title", "word " * (WORDS - 1))
PER_CALL, CALLS = 4, 4
"""What the tokenizer of these worlds takes at most: articles whose tokens nobody has counted yet."""


def watched(world: World, limits: LoopLimits) -> tuple[Process, dict[str, int]]:
    """A worker, and the highest that its queues have been, looked at after everything that makes them longer."""
    highest = dict.fromkeys(("articles", "bytes", "tokens"), 0)
    process = world.start(limits=limits)

    def look() -> None:
        now = (process.tracker.in_flight, process.tracker.in_flight_bytes, process.intake.scheduler.queued_tokens)
        for name, value in zip(highest, now, strict=True):
            highest[name] = max(highest[name], value)

    look_after(process.tracker, "track", look)
    look_after(process.tracker, "count_unpacked", look)
    look_after(process.intake.scheduler, "add", look)
    process.source.open(process.worker)
    return process, highest


def look_after(owner: object, method: str, look: Callable[[], None]) -> None:
    """Have `look` called after each call of a method, which does what it always does."""
    original = getattr(owner, method)

    def looked_at(argument: object) -> None:
        original(argument)
        look()

    setattr(owner, method, looked_at)


SIZE = len(ARTICLE) + len(b"key")
TOKENS = WORDS + 6 * -(-WORDS // 4)
"""Of an article at most: every window repeats at most 4 tokens and has two of its own."""


@pytest.mark.parametrize(
    ("queue", "limits", "bound", "more"),
    [
        ("articles", replace(LIMITS, max_in_flight=7), 7, 1),
        ("bytes", replace(LIMITS, max_in_flight_bytes=10 * SIZE), 10 * SIZE, PER_CALL * CALLS * SIZE),
        ("tokens", replace(LIMITS, max_queued_tokens=400), 400, PER_CALL * CALLS * TOKENS),
    ],
)
def test_every_queue_has_a_bound_and_uses_it(queue: str, limits: LoopLimits, bound: int, more: int) -> None:
    """Above it nothing is read. The last poll may exceed that of bytes, and what the tokenizer has that of tokens."""
    world = World()
    world.put(*[ARTICLE] * 80)
    process, highest = watched(world, limits)
    world.steps(process, until=world.done)
    assert bound <= highest[queue] < bound + more


def test_what_articles_take_beyond_their_records_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many small records one poll returned: they are decoded when others were published."""
    monkeypatch.setattr(intake_module, "_DECODED_BYTES", 1)
    world = World()
    world.put(*[ARTICLE] * 50)
    further = bytes(10_000)
    process, _ = watched(world, replace(LIMITS, max_in_flight_bytes=5 * len(further)))
    process.intake.read = lambda raw: replace(read(raw), further=further)
    highest = [0]
    look_after(process.tracker, "count_unpacked", lambda: highest.append(process.tracker.unpacked_bytes))
    world.steps(process, until=world.done)
    assert 5 * len(further) <= max(highest) <= 6 * len(further), "one more for the oldest record of its partition"
    assert (0, 0) == (process.tracker.unpacked_bytes, process.tracker.in_flight_bytes)


def test_one_article_that_is_larger_than_every_bound_goes_through() -> None:
    """A bound stops the next article, never the one that is there: nothing waits for capacity that cannot come."""
    world = World()
    world.put(SHORT, article_value("title", "word " * 2_000), SHORT)
    process, _ = watched(world, replace(LIMITS, max_in_flight_bytes=100, max_queued_tokens=50, max_in_flight=1))
    world.steps(process, until=world.done)


def test_the_source_is_paused_and_polled_while_capacity_is_missing() -> None:
    """Not at once, since a pause throws away what is prefetched; then polls go on so that the group sees life."""
    world = World()
    process = world.start(limits=replace(LIMITS, max_in_flight=3, engine_timeout_s=1e9)).joined()
    world.put(*[SHORT] * 10)
    world.steps(process, until=lambda: process.engine.busy > 0 and process.tracker.in_flight == 3)
    pool = process.engine
    pool.hangs = True
    full_s, polls = world.clock(), len(process.source.polls)
    world.steps(process, until=lambda: process.source.paused)
    paused_s = world.clock() - full_s
    assert LIMITS.pause_after_s <= paused_s <= LIMITS.pause_after_s + 2 * LIMITS.idle_wait_s
    assert len(process.source.polls) <= polls + 1
    world.steps(process, until=lambda: world.clock() >= full_s + 20)
    polls_per_second = (len(process.source.polls) - polls) / 18
    assert 1 / LIMITS.idle_wait_s - 1 <= polls_per_second <= 1 / LIMITS.idle_wait_s + 1
    assert process.counters.read == 3
    pool.hangs = False
    process.source.expel()  # what hung is forgotten, so there is capacity again
    world.steps(process, until=world.done)
    assert not process.source.paused


def test_no_room_for_a_moment_pauses_nothing() -> None:
    """Under steady load the bound is met all the time, and the prefetched records stay where they are."""
    world = World()
    pauses: list[None] = []
    process = world.start(limits=replace(LIMITS, max_in_flight=5))
    process.source.pause = lambda: pauses.append(None)  # type: ignore[method-assign]
    process.source.open(process.worker)
    world.put(*[SHORT] * 100)
    world.steps(process, until=world.done)
    assert pauses == []


def test_a_limit_of_the_rate_lets_an_idle_worker_wait() -> None:
    """What it might read at once is no reason to look all the time."""
    world = World()
    process = world.start(limits=replace(LIMITS, max_articles_per_second=100.0)).joined()
    before_s = world.clock()
    for _ in range(20):
        process.worker.step()
    assert world.clock() - before_s > 10 * LIMITS.idle_wait_s


DENSE = article_value("title", "word " * 1_500)


@pytest.fixture
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queues, "LONG_BYTES", 1_000)
    monkeypatch.setattr(queues, "IN_PROGRESS_BYTES", 20_000)


@pytest.mark.slow
@pytest.mark.usefixtures("_small")
@pytest.mark.parametrize("seed", range(3))
def test_other_partitions_are_done_while_long_articles_are_in_progress(seed: int) -> None:
    """Though these were there first, and each is many times what all queues hold."""
    world = World(seed)
    world.put(*[DENSE] * 4, partition=0)
    world.put(*[SHORT] * 40, partition=1)
    process = world.start().joined()
    world.steps(process, until=lambda: len(world.outputs(partition=1)) == 40, at_most=20_000)
    assert len(world.outputs(partition=0)) < 4
    world.steps(process, until=world.done, at_most=100_000)
    assert (len(world.outputs(partition=0)), process.intake.busy) == (4, False)


@pytest.mark.slow
@pytest.mark.usefixtures("_small")
@pytest.mark.parametrize("turns", [1, 3, 10, 30, 100, 300])
def test_long_articles_survive_being_forgotten_at_any_time(turns: int) -> None:
    """Waiting, with the tokenizer, held or with the engine: who is expelled reads them again."""
    world = World()
    world.put(SHORT, DENSE, DENSE, DENSE, SHORT, partition=0)
    process = world.start().joined()
    for _ in range(turns):
        process.worker.step()
    process.source.expel()
    world.steps(process, until=world.done, at_most=100_000)
    assert len(world.outputs()) == 5
