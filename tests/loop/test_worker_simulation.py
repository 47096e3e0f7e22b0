"""Many small worlds with everything going wrong in them, judged by what stands in the log in the end and all along.

Workers crash between any two steps that touch the log, are thrown out, stopped, doubled; transactions fail, or nobody
knows whether they did, or they arrive late, or a rebalance meets them; devices run out of memory. Each world is made from
its seed alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from random import Random

import pytest
from loop import world as world_module
from loop.checker import unfinished
from loop.fake_clock import TICK_S
from loop.fake_model import with_room_for
from loop.fake_schemas import SKIPPED, FakeSchemas, with_schema
from loop.fake_source import FakeSource
from loop.fake_tasks import ONE_TASK
from loop.faults import Crash, Late
from loop.world import INVALID, LIMITS, LONG, ONE_TOPIC, POISONED, SHORT, UNTOKENIZABLE, Process, World
from rules.test_offsets import Naive, PositionCommitter
from support.properties import seeds

from enricher.errors import FatalError, TransactionTrouble
from enricher.worker.records import Partition, Release
from enricher.worker.rules.offsets import OffsetTracker

CALM_S = 3.0
"""When the world stops being cruel; from then on everything must be finished."""
SESSION_S = 1.0
UNKNOWN_SCHEMA = with_schema("unknown", SHORT)
VALUES = [SHORT, SHORT, SHORT, LONG, None, INVALID, UNTOKENIZABLE, POISONED, SKIPPED]


class Simulation:
    """One world, its workers, and what goes wrong."""

    values: Sequence[bytes | None] = VALUES
    forgets = 0.0
    most_turns = 4_000
    setup = ONE_TASK
    topics: Sequence[str] = ONE_TOPIC

    def __init__(self, seed: int, tracker: Callable[[], OffsetTracker] = OffsetTracker) -> None:
        self._seed, self.random = seed, Random(seed)
        self.world = World(seed, partitions=self.random.randint(1, 3), setup=self.setup, topics=self.topics)
        self._tracker = tracker
        self._running: dict[str, list[Process]] = {f"worker-{index}": [] for index in range(self.random.randint(1, 3))}
        self._cruelty = self.random.choice((0.01, 0.05, 0.2))
        # Every other device runs out of memory with full batches, which have 40 tokens.
        self.infer = self.random.choice((None, with_room_for(self.random.randint(10, 30), self.setup.infer)))
        # Half of the worlds publish at once while the load is low, the others only at the longest interval.
        self._limits = replace(LIMITS, publish_share=self.random.choice((0.0, 0.5)))
        self.found: set[str] = set()
        for _ in range(self.random.randint(4, 20)):
            self.world.clock.after(self.random.randrange(int(CALM_S / TICK_S)) * TICK_S, self._publish)

    def run(self) -> Simulation:
        """Let it happen; `found` then holds what the judge found. What ends it before says in which world."""
        try:
            for turn in range(self.most_turns):
                self._turn()
                if turn % 16 == 0:
                    self.found.update(self.world.violations())
                if self._calm and (self.found or self.world.done()):
                    break
        except BaseException as error:
            error.add_note(f"seed {self._seed}")
            raise
        self.found.update(self.world.violations(), unfinished(self.world.log))
        return self

    # ---- what happens

    @property
    def _calm(self) -> bool:
        return self.world.clock() >= CALM_S

    def _publish(self) -> None:
        """Someone writes articles: plainly, in a transaction that commits, or in one that does not."""
        world, (topic, partition) = self.world, self.random.choice(self.world.log.input)
        values = self.random.choices(self.values, k=self.random.randint(1, 8))
        match self.random.randrange(4):
            case 0:
                world.put_transaction(*values, partition=partition, topic=topic)
            case 1:
                world.put_transaction(*values, partition=partition, topic=topic, commit=False)
            case _:
                world.put(*values, partition=partition, topic=topic)

    def _turn(self) -> None:
        name = self.random.choice(list(self._running))
        processes = self._running[name]
        if not processes:
            self._start(name)
            return
        process = self.random.choice(processes)
        if not self._calm and self.random.random() < self._cruelty:
            self.random.choice([self._crash, self._stop, self._double, self._expel])(name, process)
        else:
            self.step(name, process)

    def _start(self, name: str) -> None:
        process = self.world.start(
            name, fault=self._fault, tracker=self._tracker, infer=self.infer, limits=self._limits, forgets=self.forgets
        ).joined()
        self._running[name].append(process)

    def step(self, name: str, process: Process) -> None:
        """One turn of a process, which may be its last one."""
        try:
            process.worker.step()
        except Crash:
            self._crash(name, process)
        except FatalError:
            self._close(name, process)

    def _crash(self, name: str, process: Process) -> None:
        """Gone without a word: the group notices at the session timeout, the coordinator at the next start or later."""
        self._running[name].remove(process)
        self.world.clock.after(SESSION_S, process.source.expel)

    def _stop(self, name: str, process: Process) -> None:
        """Asked to end: drain, publish, leave."""
        try:
            process.drain()
        except Crash:
            self._crash(name, process)
        except FatalError:
            self._close(name, process)
        else:
            self._close(name, process)

    def _close(self, name: str, process: Process) -> None:
        process.close()
        self._running[name].remove(process)

    def _double(self, name: str, _process: Process) -> None:
        """A second process of the same name, while the first is still at work and does not know."""
        if len(self._running[name]) < 2:
            self._start(name)

    def _expel(self, _name: str, process: Process) -> None:
        process.source.expel()

    def _fault(self, step: str) -> None:
        if self._calm:
            return
        if step == "offsets_under_way" and self.random.random() < 4 * self._cruelty:
            self._visit()
        if self.random.random() > self._cruelty:
            return
        if self.random.random() < 0.3:
            raise Crash(step)
        if step == "commit" and self.random.random() < 0.5:
            raise Late(self.random.choice((1, 2, 3, 50)) * TICK_S)
        if step != "poll":
            raise TransactionTrouble(step)

    def _visit(self) -> None:
        """A member that reads nothing comes, and goes after a while: the generation changes, and partitions move."""
        group = self.world.log.group
        guest = group.join("guest")
        self.world.clock.after(self.random.choice((0, 1, 16, SESSION_S / TICK_S)) * TICK_S, lambda: group.leave(guest))


class SchemaSimulation(Simulation):
    """Most articles need one of a few schemas, and the registry that has them is away again and again, until it is calm."""

    values = (*VALUES, *(with_schema(name, SHORT) for name in "abcdef"), with_schema("a", LONG), UNKNOWN_SCHEMA)
    forgets = 0.1

    def __init__(self, seed: int, tracker: Callable[[], OffsetTracker] = OffsetTracker) -> None:
        super().__init__(seed, tracker)
        for _ in range(self.random.randint(1, 4)):
            self.world.clock.after(self.random.random() * CALM_S, self._outage)

    def _outage(self) -> None:
        self.world.registry.away = True
        self.world.clock.after(self.random.random(), self._back)

    def _back(self) -> None:
        self.world.registry.away = False


@pytest.mark.parametrize("seeds", seeds(quick=10, plain=30, every=500))
def test_articles_that_wait_for_schemas_have_exactly_one_output_too(seeds: range) -> None:
    """Whatever else happens meanwhile; an unknown schema is a dead letter, and a registry that is away never is one."""
    for seed in seeds:
        assert SchemaSimulation(seed).run().found == set(), f"seed {seed}"


@pytest.mark.slow
def test_the_simulation_has_articles_that_wait() -> None:
    """Guards the test above: articles wait for schemas, also while the registry is away, and processes end meanwhile."""
    worlds = [SchemaSimulation(seed).run().world for seed in range(30)]
    processes = [process for world in worlds for process in world.started]
    assert sum(process.schemas.waited for process in processes) > 300
    assert sum(process.intake.waiting_articles > 0 for process in processes) > 5, "these crashed while articles waited"
    assert sum(process.source.holds for process in processes) > 20
    assert sum(bool(process.source.held) for process in processes) > 5, "these crashed while a partition was held"


class AnswersWithoutSaying(FakeSchemas):
    """A bug for the negative control: a schema that is here, which nobody is told."""

    def take_answered(self) -> Collection[str]:
        """Nothing, ever."""
        return ()


def test_the_simulation_notices_a_ticket_that_nobody_wakes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same worlds, and a ticket that waits for ever."""
    monkeypatch.setattr(world_module, "FakeSchemas", AnswersWithoutSaying)
    monkeypatch.setattr(SchemaSimulation, "most_turns", 1_000)
    assert any("is committed up to" in wrong for seed in range(3) for wrong in SchemaSimulation(seed).run().found)


class SkipsWhatItDropped(FakeSource):
    """A bug for the negative control: reads on behind the records that the client had prefetched when it was paused."""

    def hold(self, partitions: Collection[Partition]) -> None:
        """Skip a record of each partition whose hold ends."""
        released = self.held.difference(partitions)
        super().hold(partitions)
        for partition in released:
            at = self._next[partition]
            if at is not None and at < self._log.partitions[partition].end:
                self._next[partition] = at + 1


def test_the_simulation_notices_a_record_that_was_skipped_after_a_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same worlds, and a partition that is not read on from where it was."""
    monkeypatch.setattr(world_module, "FakeSource", SkipsWhatItDropped)
    assert any("lost" in wrong for seed in range(10) for wrong in SchemaSimulation(seed).run().found)


@pytest.mark.parametrize("seeds", seeds(quick=40, plain=100, every=2_000))
def test_every_article_has_exactly_one_output_whatever_happens(seeds: range) -> None:
    """At every moment the visible outputs are those of the inputs below the committed offsets; in the end, all of them."""
    for seed in seeds:
        assert Simulation(seed).run().found == set(), f"seed {seed}"


@pytest.mark.slow
def test_the_simulation_is_as_cruel_as_it_says() -> None:
    """Guards the test above against a world in which nothing goes wrong: it has all the troubles it speaks of."""
    worlds = [Simulation(seed).run().world for seed in range(20)]
    tallies = [process.counters for world in worlds for process in world.started]
    assert len(tallies) > 20 * 3
    assert sum(counters.recoveries for counters in tallies) > 10
    assert sum(counters.forgotten for counters in tallies) > 50
    assert sum(counters.out_of_memory for counters in tallies) > 10
    assert sum(counters.published for counters in tallies) > 250
    assert sum(counters.skipped for counters in tallies) > 20
    assert sum(process.sink.repeated for world in worlds for process in world.started) > 10


class KeepsWhatWasRevoked(OffsetTracker):
    """Partitions that went to another member are never forgotten, and published when they are finished."""

    def unassign(self, partitions: Collection[Partition]) -> int:
        """Nothing, unless they come back."""
        del partitions
        return 0


class CommitsOneTooFar(OffsetTracker):
    """Commits the offset after the one that is next to be read."""

    def release(self, positions: Mapping[Partition, int]) -> Release:
        """One more than there is."""
        release = super().release(positions)
        finished = {ticket.raw.partition for ticket in release.tickets}
        return Release(release.tickets, {at: offset + (at in finished) for at, offset in release.committable.items()})


@pytest.mark.parametrize(
    ("tracker", "complaint"),
    [
        (PositionCommitter, "lost"),
        (Naive, "doubled"),
        (KeepsWhatWasRevoked, "doubled"),
        (CommitsOneTooFar, "lost"),
    ],
)
def test_a_worker_with_a_classic_bug_is_caught(tracker: Callable[[], OffsetTracker], complaint: str) -> None:
    """The negative control: already in the few worlds of a quick run, the same judge finds each bug."""
    seeds = reversed(range(40))
    assert any(wrong.startswith(complaint) for seed in seeds for wrong in Simulation(seed, tracker).run().found)
