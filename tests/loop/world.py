"""A world to run workers in: a fake log, a fake clock, articles, and processes that are started, stepped and killed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random

from loop import checker
from loop.fake_clock import TICK_S, FakeClock, FakePool, FakeWakeup
from loop.fake_log import FakeLog
from loop.fake_model import DEADLY, article_value
from loop.fake_schemas import FakeRegistry, FakeSchemas
from loop.fake_sink import DEAD_LETTERS, OUTPUT, FakeSink
from loop.fake_source import FakeSource
from loop.fake_tasks import ONE_TASK, Setup
from loop.faults import Fault, no_fault

from enricher.errors import TransactionTrouble
from enricher.worker.articles import serialise_findings
from enricher.worker.loop.intake import Intake
from enricher.worker.loop.isolation import Isolation
from enricher.worker.loop.loop import Worker
from enricher.worker.loop.pacing import Budget, LoopLimits, Pacing
from enricher.worker.loop.ports import Tokenized
from enricher.worker.loop.recovery import Recovery, RecoveryLimits
from enricher.worker.loop.snapshot import SnapshotReader
from enricher.worker.records import Batch, BatchResult, Partition, Ticket
from enricher.worker.rules.batching import BatchRules, LengthBucketScheduler
from enricher.worker.rules.dead_letter_limits import DeadLetterLimits, Limits
from enricher.worker.rules.offsets import OffsetTracker
from enricher.worker.stats import Counters
from enricher.worker.telemetry.tracing import ContextPropagation

INPUT = "articles"
ONE_TOPIC = (INPUT,)

LIMITS = LoopLimits(
    max_articles_per_second=0.0,
    max_in_flight=64,
    max_in_flight_bytes=1_000_000,
    max_queued_tokens=400,
    publish_interval_s=256 * TICK_S,
    publish_share=0.0,
    poll_interval_s=32 * TICK_S,
    idle_wait_s=256 * TICK_S,
    engine_timeout_s=30.0,
    stall_timeout_s=60.0,
    drain_timeout_s=4.0,
    max_deaths_at_offset=3,
)
RULES = BatchRules(
    (4, 6, 8, 10), max_batch_tokens=40, max_wait_s=64 * TICK_S, run_overhead_tokens=2, early_overhead=0.2
)
# No pauses: the loop waits them out on an event of its own, in real time.
RECOVERY = RecoveryLimits(timeout_s=60.0, attempt_timeout_s=30.0, max_in_a_row=5, first_pause_s=0.0)

SHORT = article_value("news of Ada", "today Ada Lovelace met Charles in London")
LONG = article_value("long read", " ".join(f"then Mister {'Very ' * 9}Long said so" for _ in range(3)))
"""About 50 tokens in windows of 8: its names of eleven words stand across seams."""
INVALID = b"no second line"
UNTOKENIZABLE = article_value("strange", "untokenizable words")
KILLER = article_value("beware", f"a {DEADLY} word")
"""Ends the process whose engine is `killed_by_deadly`."""
POISONED = article_value("bad", "some poison " + "and words after it " * 5)


@contextmanager
def unguarded(_what: str, _limit_s: float) -> Iterator[None]:
    """A guard that never barks."""
    yield


@dataclass(slots=True, eq=False)
class Process:
    """A running worker and what it was given."""

    worker: Worker
    source: FakeSource
    sink: FakeSink
    tokenizer: FakePool[list[Ticket], Tokenized]
    engine: FakePool[Batch, BatchResult]
    wakeup: FakeWakeup
    intake: Intake
    schemas: FakeSchemas
    tracker: OffsetTracker
    counters: Counters

    # ---- what `Worker.run` does between its turns, which a world makes one by one

    def joined(self) -> Process:
        """Join the group; returns this process."""
        self.source.open(self.worker)
        return self

    def recover(self, trouble: TransactionTrouble) -> None:
        """Do what follows a transaction that fails."""
        self.worker._recover(trouble)

    def take_back_attempts(self) -> None:
        """Do what follows an end that no record has caused."""
        self.worker._take_back_attempts()

    def drain(self) -> None:
        """Publish what is finished, as a worker that ends in order does."""
        self.worker._drain()

    def close(self) -> None:
        """Leave the group and let go of everything."""
        self.worker._close()


class World:
    """Everything outside the workers, and the seeds of all chance in it. Each of the input `topics` has `partitions`."""

    def __init__(
        self, seed: int = 0, partitions: int = 2, setup: Setup = ONE_TASK, topics: Sequence[str] = ONE_TOPIC
    ) -> None:
        self.setup = setup
        self.random = Random(seed)
        self.clock = FakeClock()
        self.registry = FakeRegistry()
        self.started: list[Process] = []
        """Every process that there ever was."""
        self._judged: tuple[object, list[str]] = None, []
        self.log = FakeLog(dict.fromkeys((*topics, OUTPUT, DEAD_LETTERS), partitions), inputs=topics)

    def put(self, *values: bytes | None, partition: int = 0, topic: str = INPUT) -> list[int]:
        """Append input records; returns their offsets."""
        return [self.log.append(Partition(topic, partition), (b"key", value)) for value in values]

    def put_transaction(
        self, *values: bytes | None, partition: int = 0, topic: str = INPUT, commit: bool = True
    ) -> None:
        """Append input records as a transaction of the publisher, committed or aborted: a marker follows them."""
        producer = self.log.init_transactions("publisher")
        producer.begin()
        for value in values:
            producer.produce(Partition(topic, partition), (b"key", value))
        if commit:
            producer.commit()
        else:
            self.log.init_transactions("publisher")

    def start(
        self,
        name: str = "worker-0",
        *,
        fault: Fault = no_fault,
        refuses: checker.Refuses = checker.accept_all,
        until_caught_up: bool = False,
        tracker: Callable[[], OffsetTracker] = OffsetTracker,
        recovery: RecoveryLimits = RECOVERY,
        limits: LoopLimits = LIMITS,
        infer: Callable[[Batch], BatchResult] | None = None,
        forgets: float = 0.0,
        dead_letters: DeadLetterLimits | None = None,
    ) -> Process:
        """Start a worker: connected, and a member of the group."""
        random, setup = Random(self.random.random()), self.setup
        wakeup, counters = FakeWakeup(self.clock), Counters()
        source = FakeSource(self.log, self.clock, name, random=random, fault=fault, until_caught_up=until_caught_up)
        dead_letters = dead_letters or DeadLetterLimits(Limits())
        sink = FakeSink(
            self.log,
            self.clock,
            name,
            membership=source.membership,
            fault=fault,
            refuses=refuses,
            dead_letters=dead_letters,
        )
        tokenizer = FakePool(setup.tokenize, clock=self.clock, wakeup=wakeup, random=random, longest_s=16 * TICK_S)
        engine = FakePool(infer or setup.infer, clock=self.clock, wakeup=wakeup, random=random)
        schemas = FakeSchemas(self.registry, self.clock, wakeup, random, forgets=forgets)
        scheduler = LengthBucketScheduler(RULES)
        intake = Intake(
            read=schemas.read,
            tokenizer=tokenizer.as_pool(),
            cutter=setup.cutter,
            scheduler=scheduler,
            heads=setup.heads,
            keep=serialise_findings,
            chars_per_call=1_024,
            clock=self.clock,
            schemas=schemas,
        )
        counters.name_tasks([head.task.name for head in setup.heads if head.task.named])
        offsets, pool = tracker(), engine.as_pool()
        pacing = Pacing(source, intake, scheduler, pool, offsets, limits, self.clock)
        worker = Worker(
            source=source,
            sink=sink,
            tracker=offsets,
            intake=intake,
            scheduler=scheduler,
            engine=pool,
            heads=setup.heads,
            keep=serialise_findings,
            padded_tokens=lambda batch: batch.padded_tokens,
            budget=Budget(scheduler),
            pacing=pacing,
            isolation=Isolation(source, sink, pacing, counters),
            dead_letters=dead_letters,
            recovery=Recovery(source, sink, recovery, clock=self.clock, guard=unguarded),
            snapshots=SnapshotReader(source, scheduler, pool, offsets, self.clock, intake, pacing, self.clock()),
            counters=counters,
            tracing=ContextPropagation(),
            clock=self.clock,
            wakeup=wakeup,
            guard=unguarded,
            limits=limits,
        )
        sink.open()
        self.started.append(
            Process(worker, source, sink, tokenizer, engine, wakeup, intake, schemas, worker.tracker, counters)
        )
        return self.started[-1]

    def steps(self, *processes: Process, until: Callable[[], bool], at_most: int = 2_000) -> int:
        """Step workers in turn until something holds; returns how many turns it took. The judge looks on all the time."""
        for turns in range(at_most):
            if until():
                return turns
            for process in processes:
                process.worker.step()
                assert self.violations() == []
        raise AssertionError(f"still not after {at_most} turns: {checker.unfinished(self.log)}")

    def violations(self, refuses: checker.Refuses = checker.accept_all) -> list[str]:
        """What the judge finds wrong at this moment. It reads the whole log, so only if that has changed."""
        asked = (self.log.changes, refuses)
        if asked != self._judged[0]:
            self._judged = asked, checker.violations(self.log, refuses, self.setup.expected)
        return self._judged[1]

    def done(self) -> bool:
        """True when everything is committed, up to the very end."""
        return all(map(self.log.is_finished, self.log.input))

    def outputs(self, topic: str = OUTPUT, partition: int = 0) -> Sequence[object]:
        """What a downstream reader sees."""
        return [payload for _, payload in self.log.read_committed(Partition(topic, partition))]
