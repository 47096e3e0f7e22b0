"""A worker that can read nothing ends before it commits a dead letter beyond a limit, whatever else goes wrong meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from loop.fake_sink import DEAD_LETTERS
from loop.faults import Fault, Faults, no_fault
from loop.test_worker_simulation import Simulation
from loop.test_worker_trouble import STEPS
from loop.world import INPUT, INVALID, SHORT, UNTOKENIZABLE, Process, World
from support.properties import seeds

from enricher.errors import TooManyDeadLetters, TransactionTrouble
from enricher.worker.records import Mark, Partition, ReachedLimit, Release, Start
from enricher.worker.rules.dead_letter_limits import Cut, DeadLetterLimits, Limits

LIMIT = 20
IN_A_ROW = Limits(LIMIT, 0, 100)
REACHED = ReachedLimit(LIMIT, reason="decode:InvalidArticle")
FIRST, SECOND = Partition(INPUT, 0), Partition(INPUT, 1)
PAUSES = 0.95
"""How seldom a process is started in a turn, as it is in a crash loop."""
BAD: Sequence[bytes | None] = (INVALID, INVALID, UNTOKENIZABLE, None)


def letters_in(world: World) -> int:
    """How many dead letters readers see."""
    return sum(
        len(world.outputs(partition.topic, partition.number))
        for partition in world.log.partitions
        if partition.topic == DEAD_LETTERS
    )


def started(world: World, limits: Limits = IN_A_ROW, fault: Fault = no_fault) -> Process:
    """A worker with limits, in the group."""
    return world.start(dead_letters=DeadLetterLimits(limits), fault=fault).joined()


def step(world: World, process: Process, *, judged: bool) -> None:
    """Step it until it ends, for some thousand turns at most."""
    for _ in range(2_000):
        process.worker.step()
        assert not judged or world.violations() == []


def ended(world: World, process: Process, *, judged: bool = True) -> TooManyDeadLetters:
    """Step it until it ends by a limit. `judged`: while the judge looks on, who knows of no refused outputs."""
    with pytest.raises(TooManyDeadLetters) as end:
        step(world, process, judged=judged)
    process.close()
    return end.value


def test_it_commits_what_is_within_the_limit_and_ends_with_its_own_code() -> None:
    """No dead letter and no offset beyond; the message has no text of an article, and the end counts as no death."""
    world = World(partitions=1)
    world.put(*[SHORT] * 5, *[INVALID] * 60)
    process = world.start(dead_letters=DeadLetterLimits(IN_A_ROW))
    with pytest.raises(TooManyDeadLetters, match=rf"{INPUT}\[0\] offset 25: .*decode:InvalidArticle") as end:
        process.worker.run()
    assert end.value.exit_code == 12
    assert INVALID.decode() not in str(end.value)
    assert (LIMIT, 5) == (letters_in(world), len(world.outputs()))
    assert {FIRST: 25} == world.log.committed
    assert ({FIRST: Mark()}, {FIRST: REACHED}) == (world.log.marks, world.log.reached_limits)
    assert world.violations() == []


def test_a_partition_that_begins_with_the_one_beyond_is_marked_too() -> None:
    """Nothing of it is committed before; the attempt that was counted there is taken back."""
    world = World()
    process = started(world)
    world.put(*[INVALID] * LIMIT, partition=0)
    world.steps(process, until=world.done)
    world.put(INVALID, partition=1)
    ended(world, process)
    assert {SECOND: REACHED} == {at: mark for at, mark in world.log.reached_limits.items() if mark != ReachedLimit()}
    assert (0, Mark()) == (world.log.committed[SECOND], world.log.marks[SECOND])


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("visit", [1, 2])
def test_a_transaction_that_fails_or_is_in_doubt_counts_at_most_once(step: str, visit: int) -> None:
    """One that took effect although the worker did not learn it is not counted."""
    world = World(partitions=1)
    process = started(world, fault=Faults(step, TransactionTrouble(step), visit))
    world.put(*[INVALID] * 12)
    world.steps(process, until=world.done)
    world.put(*[INVALID] * 60)
    ended(world, process)
    assert letters_in(world) == world.log.committed[FIRST]
    assert LIMIT <= letters_in(world) <= LIMIT + 12 * (step == "committed")


def test_recoveries_leave_no_more_to_a_worker_than_it_had() -> None:
    """At the limit, transaction after transaction fails."""
    world = World(partitions=1)
    process = started(world, fault=Faults("begin", TransactionTrouble("begin"), 4, 6, 8))
    world.put(*[INVALID] * LIMIT)
    world.steps(process, until=world.done)
    for _ in range(3):
        world.put(None)
        world.steps(process, until=world.done)
    assert process.counters.recoveries > 0
    world.put(*[INVALID] * 60)
    ended(world, process)
    assert letters_in(world) == LIMIT


def test_crossing_it_while_partitions_are_revoked_commits_nothing_beyond() -> None:
    """The last transaction before a rebalance is cut as well, and the next owner does not read on there."""
    world = World()
    process = started(world)
    world.put(*[INVALID] * 15, partition=0)
    world.steps(process, until=world.done)
    world.put(*[INVALID] * 60, partition=0)
    process.worker.pacing.may_publish = lambda: False  # type: ignore[method-assign]
    world.steps(process, until=process.tracker.publishable)
    other = world.start("worker-1", dead_letters=DeadLetterLimits(IN_A_ROW)).joined()
    ended(world, process)
    assert letters_in(world) == LIMIT
    assert "accept" in str(ended(world, other))
    assert letters_in(world) == LIMIT
    assert world.violations() == []


class Broken(Simulation):
    """Workers that can read no article, and are started again whenever they end; everything else goes wrong as well."""

    values = BAD
    limits = IN_A_ROW
    rule = DeadLetterLimits

    def _start(self, name: str) -> None:
        if self.world.started and self.random.random() < PAUSES:
            return
        process = self.world.start(
            name, fault=self._fault, limits=self._limits, dead_letters=self.rule(self.limits)
        ).joined()
        self._running[name].append(process)

    def step(self, name: str, process: Process) -> None:
        """One turn, which may end by a limit: no record is to blame for that."""
        try:
            super().step(name, process)
        except TooManyDeadLetters:
            process.take_back_attempts()
            raise

    def run(self) -> Broken:
        """For a while: it has no end."""
        for partition in self.world.log.input:
            self.world.put(*[INVALID] * 150, partition=partition.number)
        for _ in range(800):
            left = self._left_at_a_limit()
            self._turn()
            self.found.update(f"{at} was read on" for at in left.keys() - self._left_at_a_limit().keys())
        self.found.update(self.world.violations())
        return self

    def _left_at_a_limit(self) -> dict[tuple[Partition, int], ReachedLimit]:
        """Where workers ended at a limit, with the offset that is committed there."""
        log = self.world.log
        return {(at, log.committed[at]): mark for at, mark in log.reached_limits.items() if mark != ReachedLimit()}


class BrokenWithoutLimits(Broken):
    """The control."""

    limits = Limits()


class CommitsBeyond(DeadLetterLimits):
    """A bug for the negative control: the check comes after the commit."""

    def cut(self, release: Release) -> tuple[Release, Cut | None]:
        """All of it."""
        return release, super().cut(release)[1]


class LooksNowhere(DeadLetterLimits):
    """A bug for the negative control: a worker begins wherever it is assigned."""

    def check_starts(self, start_of: Callable[[Partition], Start | None]) -> None:
        """Look at none."""


class BrokenAndBlind(Broken):
    """The negative control."""

    rule = LooksNowhere


def most_allowed(broken: Broken) -> int:
    """A row for each process, killed ones too, and one more for transactions of unknown outcome."""
    return 2 * LIMIT * len(broken.world.started)


@pytest.mark.parametrize("seeds", seeds(quick=6, plain=30, every=300))
def test_a_crash_loop_of_broken_workers_dead_letters_within_the_limits(seeds: range) -> None:
    """Killed, fenced, expelled and doubled, with transactions of unknown outcome: no topic is walked through."""
    for seed in seeds:
        broken = Broken(seed).run()
        assert broken.found == set(), f"seed {seed}"
        assert letters_in(broken.world) <= most_allowed(broken), f"seed {seed}"


def test_without_limits_the_same_workers_dead_letter_everything() -> None:
    """The control: in these worlds there is much more to dead-letter, and nothing else keeps workers from it."""
    runs = [BrokenWithoutLimits(seed).run() for seed in range(6)]
    beyond = [letters_in(run.world) - most_allowed(run) for run in runs]
    assert sum(count > 0 for count in beyond) >= 4, beyond


def test_a_worker_that_reads_on_where_one_ended_is_caught() -> None:
    """The negative control: a crash loop adds the limit again with each start."""
    runs = [BrokenAndBlind(seed).run() for seed in range(6)]
    assert all(any("was read on" in wrong for wrong in run.found) for run in runs)


def test_a_check_after_the_commit_is_caught() -> None:
    """The negative control: the worker ends as well, with more in the log than the limit."""
    world = World(partitions=1)
    world.put(*[INVALID] * 60)
    process = world.start(dead_letters=CommitsBeyond(IN_A_ROW)).joined()
    ended(world, process)
    assert letters_in(world) > LIMIT
