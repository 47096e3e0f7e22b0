"""Two lanes: a backlog in one delays the other by what the device has and a transaction, and no lane starves."""

from __future__ import annotations

from dataclasses import replace

import pytest
from loop.checker import unfinished
from loop.fake_clock import TICK_S
from loop.fake_schemas import with_schema
from loop.fake_sink import Output
from loop.test_worker_simulation import Simulation
from loop.world import LIMITS, LONG, RULES, SHORT, Process, World
from support.reading_articles import article_in
from support.seeds import seeds

from enricher.worker.loop.pacing import LoopLimits
from enricher.worker.records import Article, Partition, RawRecord
from enricher.worker.rules import long_articles

NOW, LATER = "articles.now", "articles"
SHARES = {NOW: 0.8, LATER: 0.2}
BATCH_S = 64 * TICK_S
"""The longest that a batch takes. The device has up to four at a time."""
BOUND_S = RULES.max_wait_s + 2 * BATCH_S + 2 * LIMITS.publish_interval_s + LIMITS.poll_interval_s
"""From a record to its output: waiting for company, a batch before it and its own, a transaction before and its own."""


class Lanes:
    """One worker, and when each headline was put and seen."""

    def __init__(self, seed: int = 0, *, limits: LoopLimits = LIMITS, partitions: int = 2) -> None:
        self.world = World(seed, partitions=partitions, shares=SHARES)
        self.process = self.started(limits)
        self.put_s: dict[int, float] = {}
        self._seen: tuple[int, dict[str, set[int]]] = -1, {}
        self.waited_s: list[float] = []

    def started(self, limits: LoopLimits, name: str = "worker-0") -> Process:
        """A worker that is a member."""
        process = self.world.start(name, limits=limits)
        process.source.open(process.worker)
        return process

    def headline(self) -> None:
        """Somebody publishes one."""
        (offset,) = self.world.put(SHORT, topic=NOW)
        self.put_s[offset] = self.world.clock()

    def step(self) -> None:
        """One turn; the judge looks, and headlines that can be read have waited for so long."""
        self.process.worker.step()
        for offset in {*self.put_s}.intersection(self.seen(NOW)) if self.put_s else ():
            self.waited_s.append(self.world.clock() - self.put_s.pop(offset))

    def seen(self, topic: str) -> set[int]:
        """The offsets of a topic's first partition whose outputs can be read."""
        if self._seen[0] != self.world.log.changes:
            found: dict[str, set[int]] = {topic: set() for topic in SHARES}
            for each in self.world.outputs():
                assert isinstance(each, Output)
                if each.source.number == 0:
                    found[each.source.topic].add(each.offset)
            self._seen = self.world.log.changes, found
        return self._seen[1][topic]


@pytest.mark.parametrize("value", [SHORT, LONG])
@pytest.mark.parametrize("seed", [0, 1])
def test_a_backlog_delays_headlines_by_a_batch_and_a_transaction(seed: int, value: bytes) -> None:
    """However much waits in the other lane, short articles or long ones; the backlog goes on meanwhile."""
    lanes = Lanes(seed)
    lanes.world.put(*[value] * 2_000, topic=LATER)
    for number in range(10):
        lanes.world.clock.after(0.5 + number / 8, lanes.headline)
    while len(lanes.waited_s) < 10:
        lanes.step()
        assert lanes.world.clock() < 60, "headlines do not come"
    assert max(lanes.waited_s) <= BOUND_S
    assert lanes.world.violations() == []
    assert 50 < len(lanes.seen(LATER)) < 1_500


def test_without_lanes_they_wait_for_the_backlog() -> None:
    """The negative control: as one lane of equal topics would read them, most of the bound is exceeded by far."""
    world = World(partitions=2)
    process = world.start()
    process.source.open(process.worker)
    world.put(*[SHORT] * 300)
    offset = world.put(SHORT)[0]
    world.steps(process, until=lambda: any(getattr(each, "offset", -1) == offset for each in world.outputs()))
    assert world.clock() > 2 * BOUND_S


def test_a_flood_of_headlines_leaves_the_backlog_its_share() -> None:
    """The floor: if the device is what is scarce, what is done of both is in proportion to the shares."""
    lanes = Lanes(limits=replace(LIMITS, max_in_flight=400), partitions=1)
    for topic in SHARES:
        lanes.world.put(*[SHORT] * 700, topic=topic)
    while len(lanes.seen(NOW)) < 400:
        lanes.step()
    done = len(lanes.seen(LATER))
    assert 400 * 0.2 / 0.8 == pytest.approx(done, abs=40)
    assert lanes.process.source.holds > 0


def test_articles_that_wait_for_schemas_keep_to_their_lane() -> None:
    """A registry that is away stops the lane that needs it, and no headline."""
    lanes = Lanes()
    lanes.world.registry.away = True
    lanes.world.put(*[with_schema("a", SHORT)] * 500, topic=LATER)
    for number in range(10):
        lanes.world.clock.after(0.5 + number / 4, lanes.headline)
    while len(lanes.waited_s) < 10:
        lanes.step()
        assert lanes.world.clock() < 60, "headlines do not come"
    assert max(lanes.waited_s) <= BOUND_S
    assert lanes.seen(LATER) == set()


def test_small_records_that_become_long_articles_stop_no_other_lane(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stranger's schema may make a long text of a few bytes: only its lane waits until there is memory for more."""
    monkeypatch.setattr(long_articles, "LONG_BYTES", 1_000)
    monkeypatch.setattr(long_articles, "IN_PROGRESS_BYTES", 20_000)
    lanes = Lanes()
    read = lanes.process.intake.read

    def unpacking(raw: RawRecord) -> Article:
        article = article_in(read(raw))
        return replace(article, body="word " * 3_000) if raw.partition.topic == LATER else article

    lanes.process.intake.read = unpacking
    lanes.world.put(*[SHORT] * 200, topic=LATER)
    for number in range(10):
        lanes.world.clock.after(0.5 + number / 4, lanes.headline)
    while len(lanes.waited_s) < 10:
        lanes.step()
        assert lanes.world.clock() < 60, "headlines do not come"
    assert max(lanes.waited_s) <= BOUND_S
    assert len(lanes.seen(LATER)) < 100, "the backlog is still there"


def test_the_rate_is_shared_too() -> None:
    """Under a limit of the rate, headlines take the next turn, though more of the backlog was read before."""
    lanes = Lanes(limits=replace(LIMITS, max_articles_per_second=10.0))
    lanes.world.put(*[SHORT] * 500, topic=LATER)
    for number in range(10):
        lanes.world.clock.after(2.0 + number, lanes.headline)
    while len(lanes.waited_s) < 10:
        lanes.step()
        assert lanes.world.clock() < 60, "headlines do not come"
    assert max(lanes.waited_s) <= BOUND_S + 1 / 10
    assert len(lanes.seen(LATER)) + 10 <= 10 * lanes.world.clock() + 1


def test_one_lane_has_no_more_than_its_part_in_flight() -> None:
    """Half of the articles with two lanes, but for what one poll may bring, so that the other always has room."""
    lanes = Lanes()
    for partition in range(2):
        lanes.world.put(*[SHORT] * 300, topic=LATER, partition=partition)
    most, reached = 0, dict.fromkeys(range(2), 0)
    for _ in range(200):
        lanes.step()
        most = max(most, lanes.process.tracker.in_flight)
        for partition in reached:
            now = lanes.process.tracker.articles_of(Partition(LATER, partition))
            reached[partition] = max(reached[partition], now)
    assert LIMITS.max_in_flight // 2 <= most <= LIMITS.max_in_flight // 2 + LIMITS.max_in_flight // 16
    assert min(reached.values()) >= LIMITS.max_in_flight // 4, "each partition gets its part"


def test_a_worker_with_the_partitions_of_one_lane_works_on() -> None:
    """As after a rebalance that gives another member those of the other lane."""
    lanes = Lanes(partitions=1)
    other = lanes.started(LIMITS, "worker-1")
    lanes.world.put(*[SHORT] * 50, topic=NOW)
    lanes.world.put(*[SHORT] * 50, topic=LATER)
    lanes.world.steps(lanes.process, other, until=lanes.world.done)
    topics = [{each.topic for each in process.tracker.partitions} for process in (lanes.process, other)]
    assert [1, 1] == [*map(len, topics)]
    assert unfinished(lanes.world.log) == []


class LaneSimulation(Simulation):
    """The same cruelty, on two topics."""

    shares = SHARES


@pytest.mark.parametrize("seeds", seeds(quick=6, plain=30, every=1_000))
def test_every_article_of_both_lanes_has_exactly_one_output_whatever_happens(seeds: range) -> None:
    """At every moment the visible outputs are those of the inputs below the committed offsets; in the end, all of them."""
    for seed in seeds:
        assert LaneSimulation(seed).run().found == set(), f"seed {seed}"
