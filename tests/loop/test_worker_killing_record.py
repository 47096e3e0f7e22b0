"""A record that kills the process is found by the deaths counted beside the committed offsets; which ends are deaths."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import cycle

import pytest
from loop.checker import unfinished
from loop.fake_model import killed_by_deadly
from loop.fake_sink import DEAD_LETTERS, KILLED, Output
from loop.faults import Crash, Fault, Faults, Mortal, no_fault
from loop.test_worker_simulation import VALUES, Simulation
from loop.world import INPUT, KILLER, LIMITS, LONG, SHORT, Process, World
from support.properties import seeds

from enricher.errors import (
    BrokerError,
    EnricherError,
    Fenced,
    RecoveryExhausted,
    SettingsError,
    Stalled,
    TransactionTrouble,
)
from enricher.worker.loop.pacing import LoopLimits
from enricher.worker.records import Mark, Partition, Ticket

FIRST, SECOND = Partition(INPUT, 0), Partition(INPUT, 1)
MAX_DEATHS = LIMITS.max_deaths_at_offset


class Life:
    """A process that the killing record kills."""

    def __init__(
        self, world: World, name: str = "worker-0", *, limits: LoopLimits = LIMITS, fault: Fault = no_fault
    ) -> None:
        self._world = world
        self.mortal = Mortal(fault)
        self.process: Process = world.start(
            name, fault=self.mortal, infer=killed_by_deadly(self.mortal.die, world.setup.infer), limits=limits
        )
        self.process.source.open(self.process.worker)

    @property
    def alone(self) -> bool:
        """Whether it has one record in flight at most."""
        return bool(self.process.worker.pacing.attempts.suspects)

    def step(self) -> bool:
        """One turn; False when it was the last one."""
        try:
            self.process.worker.step()
        except Crash:
            self.mortal.die()
        assert self._world.violations() == []
        if self.mortal.dead:
            self.process.source.expel()
        return not self.mortal.dead

    def until(self, done: Callable[[], bool]) -> None:
        """Turns until something holds, or it dies."""
        for _ in range(5_000):
            if done() or not self.step():
                return
        raise AssertionError(f"still not after 5000 turns: {unfinished(self._world.log)}")

    def kill(self) -> None:
        """By chance, whatever it is doing."""
        self.mortal.die()
        self.process.source.expel()

    def stop(self) -> None:
        """In order."""
        self.process.worker.stop()
        self.process.drain()
        self.process.close()


def lives_until_done(world: World, *names: str, limits: LoopLimits = LIMITS, at_most: int = 50) -> int:
    """Start processes, one after the other, until all is committed; returns how many it took."""
    for count, name in enumerate(cycle(names or ("worker-0",)), start=1):
        assert count <= at_most, f"not done after {at_most} processes"
        life = Life(world, name, limits=limits)
        life.until(lambda life=life: world.done() and not life.alone)  # type: ignore[misc]
        if not life.mortal.dead:
            life.stop()
            return count
    raise AssertionError("unreachable")


def killed(world: World) -> list[tuple[Partition, int]]:
    """The inputs that were dead-lettered because they kill."""
    outputs = [each for at in world.log.input for each in world.outputs(DEAD_LETTERS, at.number)]
    return [
        (output.source, output.offset) for output in outputs if isinstance(output, Output) and output.content == KILLED
    ]


@pytest.mark.parametrize("max_deaths", [1, 3])
@pytest.mark.parametrize("names", [("worker-0",), ("worker-0", "worker-1", "worker-2")], ids=["restarts", "others"])
def test_a_record_that_kills_every_process_becomes_a_dead_letter(max_deaths: int, names: tuple[str, ...]) -> None:
    """Within so many deaths, also where another worker takes over each time; all others are enriched, once."""
    world = World()
    world.put(*[SHORT] * 5, KILLER, *[SHORT] * 5)
    world.put(*[SHORT, LONG] * 5, partition=1)
    limits = replace(LIMITS, max_deaths_at_offset=max_deaths)
    # One before the first count at that offset, if something was committed meanwhile; two alone; one that is through.
    assert lives_until_done(world, *names, limits=limits) <= max_deaths + 1 + 2 + 1
    assert killed(world) == [(FIRST, 5)]
    assert world.violations() == []
    assert world.log.marks == {FIRST: Mark(), SECOND: Mark()}


def test_switched_off_it_kills_for_ever() -> None:
    """The negative control, and what `max_deaths_at_offset = 0` means."""
    world = World()
    world.put(SHORT, KILLER, SHORT)
    with pytest.raises(AssertionError, match="not done after 20"):
        lives_until_done(world, limits=replace(LIMITS, max_deaths_at_offset=0), at_most=20)
    assert set(world.log.marks.values()) <= {Mark()}


def test_a_suspect_partition_leaves_room_for_one_record_in_the_worker() -> None:
    """So that a death is that record's: nothing else is with the tokenizer or the device, not even what was forgotten."""
    world = World()
    world.log.committed[FIRST], world.log.marks[FIRST] = 0, Mark(MAX_DEATHS)
    world.put(*[LONG, SHORT] * 5, partition=1)
    life = Life(world)
    engine, tokenizer, taken = life.process.engine, life.process.tokenizer, list[tuple[int, int, int]]()
    submit = tokenizer.submit

    def note(item: list[Ticket]) -> None:
        if life.alone:
            taken.append((len(item), tokenizer.busy, engine.busy))
        submit(item)

    tokenizer.submit = note  # type: ignore[method-assign]
    life.until(lambda: engine.busy > 0)
    world.put(*[SHORT] * 10)
    life.until(lambda: life.alone)
    assert engine.busy, "something that is forgotten is still on the device"
    while not world.done():
        life.step()
        assert not life.alone or life.process.tracker.in_flight <= 1
    assert len(taken) >= 10
    assert {(1, 0, 0)} == set(taken)
    assert life.process.counters.isolations == 1


def test_deaths_by_chance_dead_letter_nothing() -> None:
    """As many as make a partition suspect, and then one more while a record is alone in flight."""
    world = World()
    world.put(*[SHORT] * 10)
    for _ in range(MAX_DEATHS):
        life = Life(world)
        life.until(lambda life=life: life.process.engine.busy > 0)  # type: ignore[misc]
        life.kill()
    assert world.log.marks[FIRST] == Mark(MAX_DEATHS)
    life = Life(world)
    life.until(lambda: life.process.engine.busy > 0)
    assert life.alone
    life.kill()
    assert world.log.marks[FIRST] == Mark(MAX_DEATHS + 1, 1)
    assert lives_until_done(world) == 1
    assert killed(world) == []
    assert world.violations() == []


def test_stopping_takes_the_attempt_back() -> None:
    """A deployment that is stopped before anything is done leaves the count as it was, however often."""
    world = World()
    world.put(*[SHORT] * 4)
    for _ in range(2 * MAX_DEATHS):
        life = Life(world)
        life.process.engine.hangs = True
        life.until(lambda life=life: life.process.engine.busy > 0)  # type: ignore[misc]
        assert world.log.marks[FIRST] == Mark(1)
        life.stop()
        assert world.log.marks[FIRST] == Mark()
    assert lives_until_done(world) == 1


def test_giving_a_partition_up_in_order_takes_the_attempt_back() -> None:
    """In the last transaction; one that is lost counts as a death, because nobody knows whether it is one."""
    world = World()
    first = Life(world)
    first.process.engine.hangs = True
    first.step()
    world.put(*[SHORT] * 4)
    world.put(*[SHORT] * 4, partition=1)
    first.until(lambda: len(world.log.marks) == 2)
    second = Life(world, "worker-1")
    first.until(lambda: len(first.process.tracker.partitions) == 1)
    (kept,) = first.process.tracker.partitions
    assert world.log.marks == {kept: Mark(1), **dict.fromkeys({FIRST, SECOND} - {kept}, Mark())}
    first.process.source.expel()
    second.process.engine.hangs = True
    second.until(lambda: world.log.marks[kept] == Mark(2))


def test_a_suspect_partition_that_is_gone_limits_nothing() -> None:
    """Its next owner takes its records alone; this worker takes many records at a time again."""
    world = World()
    world.log.committed[FIRST], world.log.marks[FIRST] = 0, Mark(MAX_DEATHS)
    world.put(*[SHORT] * 4)
    life = Life(world)
    life.until(lambda: life.alone)
    life.process.worker.lost([FIRST])
    assert not life.alone


@pytest.mark.parametrize("step", ["begin", "send_offsets", "commit", "committed"])
def test_a_recovery_is_no_death(step: str) -> None:
    """A process that lives counts one attempt, however often its transactions fail, that of the count included."""
    world = World()
    world.put(*[SHORT] * 4)
    life = Life(world, fault=Faults(step, TransactionTrouble(step), 1, 2))
    life.until(lambda: bool(world.log.marks) and life.process.engine.busy > 0)
    assert world.log.marks[FIRST] == Mark(1)
    life.until(world.done)
    assert life.process.counters.recoveries == 2
    assert not life.process.counters.isolations


def test_one_transaction_counts_all_partitions_of_a_poll() -> None:
    """An assignment costs one small transaction when its first records arrive, and a steady worker none."""
    world = World()
    world.put(SHORT)
    world.put(SHORT, partition=1)
    life = Life(world)
    life.step()
    assert [commit.group_offsets for commit in world.log.commits] == [{FIRST: 0, SECOND: 0}]
    life.until(world.done)
    for _ in range(20):
        world.put(*[SHORT] * 5)
        life.until(world.done)
    assert [commit for commit in world.log.commits[1:] if not commit.first_offsets] == []


class DeadlyWorlds(Simulation):
    """The same worlds, with records that kill among the others."""

    values = (*[SHORT] * 20, *VALUES, *VALUES, KILLER)

    def _start(self, name: str) -> None:
        mortal = Mortal(self._fault)
        infer = killed_by_deadly(mortal.die)
        process = self.world.start(name, fault=mortal, tracker=self._tracker, infer=infer).joined()
        self._running[name].append(process)

    def step(self, name: str, process: Process) -> None:
        """One turn, which its record may end."""
        super().step(name, process)
        mortal = process.source.fault
        assert isinstance(mortal, Mortal)
        if mortal.dead and process in self._running[name]:
            self._crash(name, process)


@pytest.mark.parametrize("seeds", seeds(quick=6, plain=30, every=240))
def test_records_that_kill_end_as_dead_letters_whatever_else_happens(seeds: range) -> None:
    """In worlds of crashes, rebalances and late transactions too; nobody is blamed who has not ended two processes."""
    for seed in seeds:
        assert DeadlyWorlds(seed).run().found == set(), f"seed {seed}"


@pytest.mark.slow
def test_the_worlds_are_as_deadly_as_they_say() -> None:
    """Guards the test above against worlds in which nothing is found, or everything is taken alone."""
    worlds = [DeadlyWorlds(seed).run().world for seed in range(20)]
    assert sum(len(killed(world)) for world in worlds) > 10
    tallies = [process.counters for world in worlds for process in world.started]
    assert 10 < sum(counters.isolations > 0 for counters in tallies) < len(tallies) / 2


def test_the_judge_finds_a_rule_that_blames_too_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control: with one death alone for a verdict, the same worlds have records that are blamed wrongly."""
    monkeypatch.setattr("enricher.worker.rules.attempts.ALONE_DEATHS", 1)
    assert any(wrong.startswith("wrong") for seed in range(40) for wrong in DeadlyWorlds(seed).run().found)


def ends(world: World, fault: Fault, error: type[EnricherError]) -> None:
    """A process that ends with this error."""
    process = world.start(fault=fault)
    with pytest.raises(error):
        process.worker.run()
    process.source.expel()
    assert world.violations() == []


@pytest.mark.parametrize(
    ("step", "error", "end"),
    [
        ("produce", TransactionTrouble("too few replicas"), RecoveryExhausted),
        ("produce", BrokerError("no right to write"), BrokerError),
        ("commit", BrokerError("no right to write"), BrokerError),
        ("produce", SettingsError("fewer partitions"), SettingsError),
    ],
    ids=["exit 6", "exit 4", "exit 4 at the commit", "exit 2"],
)
@pytest.mark.parametrize(
    "before", [Mark(), Mark(MAX_DEATHS), Mark(MAX_DEATHS + 1, 1)], ids=["first", "suspect", "alone"]
)
def test_an_end_of_which_no_record_can_be_the_cause_is_no_death(
    step: str, error: Exception, end: type[EnricherError], before: Mark
) -> None:
    """However often in a row: the process takes its attempt back while it can still commit offsets."""
    world = World(partitions=1)
    world.put(*[SHORT] * 4)
    world.log.committed[FIRST], world.log.marks[FIRST] = 0, before
    visits = [2] if step == "commit" else []  # the first one is that of the mark
    for _ in range(2 * MAX_DEATHS):
        ends(world, Faults(step, error, *visits), end)
        assert world.log.marks[FIRST] == before
    assert lives_until_done(world) == 1
    assert killed(world) == []


def test_a_silent_partition_is_no_death_of_the_other_partitions_records() -> None:
    """The process ends with code 7, and another partition's records were counted."""
    world = World()
    world.put(*[SHORT] * 4)
    ends(world, Faults("poll", Stalled("silent", undelivered=True), 3), Stalled)
    assert {Mark()} == set(world.log.marks.values())
    ends(world, Faults("poll", Stalled("the model hangs"), 3), Stalled)
    assert Mark(1) == world.log.marks[FIRST]


def test_a_commit_that_arrived_is_not_taken_back_with_the_attempt() -> None:
    """The process believes that its last transactions failed: the offsets that they committed stay."""
    world = World(partitions=1)
    world.put(*[SHORT] * 4)
    process = world.start(fault=Faults("committed", TransactionTrouble("nobody knows")))
    for number in range(10):
        world.clock.after(number * 0.5, lambda: world.put(SHORT))
    with pytest.raises(RecoveryExhausted):
        process.worker.run()
    process.source.expel()
    assert world.log.committed[FIRST] > 0
    assert world.log.marks[FIRST] == Mark()
    assert world.violations() == []
    assert lives_until_done(world) == 1


def test_a_fenced_process_leaves_its_attempt_counted() -> None:
    """To take it back it would have to fence the newer process of its name."""
    world = World(partitions=1)
    world.put(*[SHORT] * 4)
    fenced = Faults("produce", Fenced("a newer producer"))
    ends(world, fenced, Fenced)
    assert world.log.marks[FIRST] == Mark(1)
    assert fenced.seen["recover"] == 0


def test_an_attempt_that_cannot_be_taken_back_counts() -> None:
    """No broker answers the process any more, which ends all the same, with its own error."""
    world = World(partitions=1)
    world.put(*[SHORT] * 4)
    no_right, away = Faults("produce", BrokerError("no right")), Faults("recover", TransactionTrouble("away"))

    def fault(step: str) -> None:
        no_right(step)
        away(step)

    ends(world, fault, BrokerError)
    assert world.log.marks[FIRST] == Mark(1)
