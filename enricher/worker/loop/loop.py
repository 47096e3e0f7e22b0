"""The loop: one thread owns all state, and each turn (`Worker.step`) goes through the same phases.

    admit     read records, as many as there is capacity for; each gets a ticket
    prepare   decode, tokenise and cut them into windows for the scheduler
    collect   take finished batches back from the engine; this frees capacity for dispatch
    dispatch  give the engine the batches that the scheduler has ready
    store     give articles the answers of the collected batches; the last one decodes its entities, which takes longest,
              so it comes after dispatch
    publish   write what is finished, in offset order, in one transaction

The loop decides and its dependencies compute. It never sleeps: while pools have work, it waits for the wakeup that they
set; otherwise it waits in the source's poll, until the next deadline at most.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace

from enricher.errors import (
    BrokerError,
    EnricherError,
    FatalError,
    Fenced,
    RecoveryExhausted,
    SettingsError,
    Stalled,
    TooManyDeadLetters,
    TransactionTrouble,
)
from enricher.worker.heads import Head
from enricher.worker.loop.intake import Intake
from enricher.worker.loop.isolation import Isolation
from enricher.worker.loop.pacing import Budget, LoopLimits, Pacing
from enricher.worker.loop.pool import WorkerPool
from enricher.worker.loop.ports import Scheduler, Sink, Source, Tracing
from enricher.worker.loop.recovery import Recovery
from enricher.worker.loop.snapshot import SnapshotReader
from enricher.worker.records import Batch, BatchResult, Keep, Partition, Release, Ticket
from enricher.worker.rules.assembly import store_answers
from enricher.worker.rules.dead_letter_limits import DeadLetterLimits
from enricher.worker.rules.offsets import OffsetTracker, names_of
from enricher.worker.runtime.deadlines import StopEvent, Wakeup
from enricher.worker.runtime.watchdog import Guard
from enricher.worker.stats import Counters

log = logging.getLogger(__name__)


@dataclass(kw_only=True)
class Worker:
    """Reads articles, enriches them, and publishes the records in offset order.

    Closes the source, the sink, the intake and the engine. `worker/wiring/` makes all parts, and decides nothing here.
    """

    source: Source
    sink: Sink
    tracker: OffsetTracker
    intake: Intake
    scheduler: Scheduler
    engine: WorkerPool[Batch, BatchResult]
    heads: Sequence[Head]
    keep: Keep
    padded_tokens: Callable[[Batch], int]
    """How many tokens the device computes for a batch; this depends on the graph variant."""
    budget: Budget
    pacing: Pacing
    isolation: Isolation
    dead_letters: DeadLetterLimits
    recovery: Recovery
    snapshots: SnapshotReader
    counters: Counters
    tracing: Tracing
    clock: Callable[[], float]
    wakeup: Wakeup
    guard: Guard
    limits: LoopLimits
    _stopping: StopEvent = field(default_factory=StopEvent, init=False)
    _collected: list[BatchResult] = field(default_factory=list, init=False)
    """Finished batches whose answers are not stored yet; empty between turns."""
    _can_publish: bool = field(default=True, init=False)
    """False from a failed transaction until its recovery: meanwhile the source's positions mean nothing."""

    def run(self, connected: Callable[[], object] = lambda: None) -> None:
        """Connect, call `connected`, work until `stop` or the end of the source, then drain and close everything."""
        try:
            self._can_publish = self.recovery.connect(self, self._stopping)
            if self._can_publish:
                connected()
            self.pacing.skip_load()
            while not self._stopping.is_set and not self.source.caught_up():
                with self.guard("one turn of the loop", self.limits.stall_timeout_s):
                    self.step()
            with self.guard("draining", self.limits.drain_timeout_s + self.limits.stall_timeout_s):
                self._drain()
        except FatalError as end:
            if _no_record_is_the_cause(end):
                self._take_back_attempts()
            raise
        finally:
            self._close()

    def step(self) -> None:
        """Run one turn. Every `TransactionTrouble` ends in the same recovery."""
        self.wakeup.clear()
        self.snapshots.turned_s = self.clock()
        self.sink.serve()
        self.pacing.measure_load()
        try:
            worked = self._admit()
            worked |= self._prepare()
            worked |= self._collect()
            worked |= self._dispatch()
            worked |= self._store()
            # Before the transaction: what finishes while it waits for brokers is collected in the next turn.
            self.pacing.check_progress()
            worked |= self._publish()
        except TransactionTrouble as trouble:
            self._recover(trouble)
        else:
            if not worked and not self.pacing.waits_in_poll:
                with self.pacing.waiting():
                    self.wakeup.wait(self.pacing.wait_s())

    def stop(self) -> None:
        """Ask the loop to drain and end. Safe in a signal handler."""
        self.snapshots.stopping = True
        self._stopping.set()
        self.wakeup.set()

    # ---- the phases of a turn: each returns whether anything moved

    def _admit(self) -> bool:
        self.source.hold(self.pacing.update_held())
        capacity = self.pacing.capacity
        if not self.pacing.may_poll(capacity):
            return False
        if self.pacing.waits_in_poll:
            with self.pacing.waiting():
                records = self.source.poll(capacity, self.pacing.wait_s())
        else:
            records = self.source.poll(max(capacity, 1), 0.0)
        self.dead_letters.check_starts(self.source.start_of)
        if not self.isolation.may_process(records):
            self._read_one_by_one()
            return True
        arrived_s = self.clock()
        self.pacing.note_read(len(records), arrived_s)
        tickets = [Ticket(raw, arrived_s) for raw in records]
        for ticket in tickets:
            self.tracker.track(ticket)
            if refusal := self.recovery.refusal_of(ticket.raw) or self.isolation.verdict_on(ticket.raw):
                ticket.finish(refusal)
        self.tracing.begin_articles(tickets)
        self.intake.take(ticket for ticket in tickets if ticket.live)
        self.counters.count_read(tickets, arrived_s)
        return bool(tickets)

    def _prepare(self) -> bool:
        again = [ticket.raw for ticket in self.intake.resume_answered()]
        if again and not self.isolation.may_process(again):
            self._read_one_by_one()
            return True
        moved = self.intake.advance(self.clock(), self.pacing.may_decode)
        self.tracker.count_unpacked(self.intake.take_unpacked_bytes())
        return moved

    def _collect(self) -> bool:
        results = self.engine.take_results()
        for result in results:
            self.tracing.end_batch(result.batch)
            self.counters.out_of_memory += self.budget.note(result)
        if results:
            self.pacing.engine_moved()
        self._collected += results
        return bool(results)

    def _dispatch(self) -> bool:
        now_s = self.clock()
        if not self.engine.busy:
            self.pacing.engine_moved()
        dispatched = False
        while self.engine.capacity and (batch := self._next_batch(now_s)):
            self.tracing.begin_batch(batch)
            self.engine.submit(batch)
            self.counters.count_batch(batch, self.padded_tokens(batch), self.scheduler.max_batch_tokens, now_s)
            dispatched = True
        self.engine.backlogged = self.pacing.backlogged
        return dispatched

    def _store(self) -> bool:
        results, self._collected = self._collected, []
        for result in results:
            self.tracker.count_unpacked(store_answers(result, self.heads, self.keep))
        return bool(results)

    def _next_batch(self, now_s: float) -> Batch | None:
        engine = self.engine
        return self.scheduler.next_batch(now_s, idle_threads=engine.threads - engine.busy, load=self.pacing.load.busy)

    def _publish(self) -> bool:
        if not self.pacing.may_publish():
            return False
        self.pacing.cadence.note_try(self.clock())
        return self._publish_now()

    def _publish_now(self, leaving: Collection[Partition] = ()) -> bool:
        """Publish in one transaction what there is to commit. `leaving`: partitions that are being given up in order.

        Raises TooManyDeadLetters once what is within the limits is committed. No record causes that end.
        """
        self.dead_letters.check_starts(self.source.start_of)
        release, cut = self.dead_letters.cut(self.tracker.release(self.source.positions(self.tracker.idle())))
        if cut:
            release = self.isolation.seal(release, {*leaving, cut.partition})
            release = replace(release, reached_limits={cut.partition: cut.reached})
        else:
            release = self.isolation.seal(release, leaving)
        self.snapshots.held_back = self.tracker.held_back()
        if not release.empty:
            self._commit(release)
        self.snapshots.limits_used = self.dead_letters.used
        if cut:
            raise TooManyDeadLetters(cut.message)
        return bool(release.tickets)

    def _commit(self, release: Release) -> None:
        began_s, self.snapshots.publishing = self.clock(), release.tickets
        with self.tracing.transaction(release.tickets) as substitutes:
            substitutes.update(self.sink.publish(release))
        self.snapshots.publishing = ()
        self.pacing.attempts.note_committed(release)
        self.dead_letters.note_committed(release.tickets, substitutes)
        self.recovery.note_success(release.committable)
        ended_s = self.clock()
        self.pacing.cadence.note_transaction(began_s, ended_s)
        self.counters.count_published(release.tickets, began_s, ended_s, substitutes)

    # ---- partitions come and go: called by the source, inside `poll` and `close`

    def assigned(self, partitions: Sequence[Partition]) -> None:
        """Track these partitions: their records follow."""
        self.tracker.assign(partitions)
        self.pacing.attempts.expect(partitions)
        self.dead_letters.expect(partitions)
        self.counters.rebalances["assigned"] += 1
        log.info("partitions assigned: %s", names_of(partitions))

    def revoked(self, partitions: Sequence[Partition]) -> None:
        """Publish what is finished and forget the rest: the next owner reads it again."""
        try:
            if partitions and not self._stopping.is_set:
                self._collect()
                self._store()
                self._publish_now(partitions)
        finally:
            self._give_up(partitions, "revoked")

    def lost(self, partitions: Sequence[Partition]) -> None:
        """Forget these partitions and publish nothing for them: another worker owns them already."""
        self._give_up(partitions, "lost")

    def _give_up(self, partitions: Sequence[Partition], how: str) -> None:
        forgotten = self.tracker.unassign(partitions)
        self.pacing.attempts.leave(partitions)
        self.dead_letters.leave(partitions)
        self.intake.drop_forgotten()
        self.counters.forgotten += forgotten
        self.counters.rebalances[how] += 1
        log.info(
            "partitions %s: %s; %d unpublished articles left to the next owner", how, names_of(partitions), forgotten
        )

    # ---- trouble, and the end

    def _recover(self, trouble: TransactionTrouble) -> None:
        """End the transaction, and read again from the committed offsets."""
        self.counters.recoveries += 1
        began_s = self.clock()
        with self._reading_again():
            self._can_publish = self.recovery.run(trouble, self._stopping)
        self.counters.recovery_s.add(self.clock() - began_s)

    def _read_one_by_one(self) -> None:
        """Read again from the committed offsets, one record at a time: one of them may kill the process."""
        log.info("reading again what is in flight, one record at a time")
        with self._reading_again():
            self.recovery.rewind()

    @contextmanager
    def _reading_again(self) -> Iterator[None]:
        """Forget everything in flight before the body goes back to the committed offsets."""
        with self.snapshots.recovering():
            self.counters.forgotten += self.tracker.forget()
            self.intake.drop_forgotten()
            yield
            self.pacing.attempts.expect(self.tracker.partitions)
            self.dead_letters.expect(self.tracker.partitions)
        self.pacing.skip_load()

    def _drain(self) -> None:
        """Wait for the batches on the device, publish what is finished, and leave the rest to the next owner."""
        self._stopping.set()
        if not self._can_publish:
            return
        deadline_s = self.clock() + self.limits.drain_timeout_s
        try:
            while self.engine.busy and self.clock() < deadline_s:
                self.wakeup.wait(self.limits.idle_wait_s)
                self.wakeup.clear()
                self._collect()
                self._store()
            self._publish_now(self.tracker.partitions)
        except (TransactionTrouble, Fenced) as trouble:
            log.warning("the last transaction failed (%s): its articles will be read again", trouble)
        self.counters.forgotten += self.tracker.forget()

    def _take_back_attempts(self) -> None:
        """Take back the attempts that this process counted, because no record is the cause of its end."""
        if not self.pacing.attempts.counted_here:
            return
        self.tracker.forget()
        try:
            self.recovery.run_once()
            self.isolation.take_back(self.tracker.partitions)
        except EnricherError as error:
            log.warning("the end of this process counts as an attempt at its next records: %s", error)

    def _close(self) -> None:
        """Close all parts, even if closing one of them raises."""
        self._stopping.set()  # leaving the group revokes all partitions: nothing may be published then
        with self.guard("closing", self.limits.stall_timeout_s), ExitStack() as closing:
            for close in (self.source.close, self.sink.close, self.intake.close, self.engine.close):
                closing.callback(close)


def _no_record_is_the_cause(end: FatalError) -> bool:
    """Whether no record can be the cause of this end, and the process may still be able to commit offsets."""
    if isinstance(end, RecoveryExhausted):
        return end.recovers
    if isinstance(end, Stalled):
        return end.undelivered
    return isinstance(end, BrokerError | SettingsError | TooManyDeadLetters)
