"""The loop: one thread owns all state, and each turn (`Worker.step`) goes through the same phases.

    admit     read records, as many as there is capacity for; each gets a ticket
    prepare   decode, tokenise and cut them into windows for the scheduler
    collect   take finished batches back from the engine; this frees capacity for dispatch
    dispatch  give the engine the batches that the scheduler has ready
    publish   write what is finished, in offset order, in one transaction

The loop decides and its dependencies compute. It never sleeps: while pools have work, it waits for the wakeup that they
set; otherwise it waits in the source's poll, until the next deadline at most.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack

from enricher.errors import (
    BrokerError,
    EnricherError,
    FatalError,
    RecoveryExhausted,
    SettingsError,
    Stalled,
    TransactionTrouble,
)
from enricher.worker.articles import write_found
from enricher.worker.loop.budget import Budget
from enricher.worker.loop.dependencies import Dependencies
from enricher.worker.loop.isolation import Isolation
from enricher.worker.loop.pacing import LoopLimits, Pacing
from enricher.worker.loop.snapshot import SnapshotReader
from enricher.worker.records import Batch, Partition, Ticket
from enricher.worker.rules.assembly import settle
from enricher.worker.rules.offsets import names_of
from enricher.worker.runtime.wakeup import StopEvent

log = logging.getLogger(__name__)


class Worker:
    """Reads articles, enriches them, and publishes the records in offset order."""

    def __init__(self, given: Dependencies, limits: LoopLimits) -> None:
        self._source, self._sink = given.source, given.sink
        self._intake, self._scheduler, self._engine = given.intake, given.scheduler, given.engine
        self._tracker, self._tracing, self._heads = given.tracker, given.tracing, given.heads
        self._clock, self._wakeup, self._guard = given.clock, given.wakeup, given.guard
        self._limits, self._padded_tokens = limits, given.padded_tokens
        self.counters, self.recovery = given.counters, given.recovery
        self.pacing = Pacing(
            given.source, given.intake, given.scheduler, given.engine, given.tracker, limits, given.clock
        )
        self.snapshots = SnapshotReader(
            given.source,
            given.scheduler,
            given.engine,
            given.tracker,
            given.clock,
            given.intake,
            lambda: self.pacing.held,
            given.clock(),
        )
        self._isolation = Isolation(given.source, given.sink, self.pacing, given.counters)
        self._attempts = self.pacing.attempts
        self.counters.name_tasks([[head.task.name for head in heads if head.task] for heads in given.heads])
        self._budget = Budget(given.scheduler)
        self._stopping = StopEvent()
        self._settled = True
        """False while a failed transaction is not recovered from: then the source's positions mean nothing."""

    def run(self, connected: Callable[[], object] = lambda: None) -> None:
        """Connect, call `connected`, work until `stop` or the end of the source, then drain and close everything."""
        try:
            self._settled = self.recovery.connect(self, self._stopping)
            if self._settled:
                connected()
            self.pacing.skip_load()
            while not self._stopping.is_set and not self._finished():
                with self._guard("one turn of the loop", self._limits.stall_timeout_s):
                    self.step()
            with self._guard("draining", self._limits.drain_timeout_s + self._limits.stall_timeout_s):
                self._drain()
        except FatalError as end:
            if _is_no_records_doing(end):
                self._take_back_attempts()
            raise
        finally:
            self._close()

    def step(self) -> None:
        """One turn. Every `TransactionTrouble` ends in the same recovery."""
        self._wakeup.clear()
        self.snapshots.turned_s = self._clock()
        self._sink.serve()
        self.pacing.measure_load()
        try:
            worked = self._admit()
            worked |= self._prepare()
            worked |= self._collect()
            worked |= self._dispatch()
            worked |= self._publish()
        except TransactionTrouble as trouble:
            self._recover(trouble)
        else:
            self.pacing.check_progress()
            if not worked:
                self.recovery.idle()
            if not worked and not self.pacing.waits_in_poll:
                with self.pacing.waiting():
                    self._wakeup.wait(self.pacing.wait_s())

    def stop(self) -> None:
        """Ask the loop to drain and end. Safe in a signal handler."""
        self.snapshots.stopping = True
        self._stopping.set()
        self._wakeup.set()

    # ---- the phases of a turn: each returns whether anything moved

    def _admit(self) -> bool:
        self._source.hold(self.pacing.to_hold())
        capacity = self.pacing.capacity
        if not self.pacing.may_poll(capacity):
            return False
        if self.pacing.waits_in_poll:
            with self.pacing.waiting():
                records = self._source.poll(capacity, self.pacing.wait_s())
        else:
            records = self._source.poll(max(capacity, 1), 0.0)
        self._isolation.arrived(records)
        arrived_s = self._clock()
        tickets = [Ticket(raw, arrived_s) for raw in records]
        for ticket in tickets:
            self._tracker.track(ticket)
            if refusal := self.recovery.refusal_of(ticket.raw) or self._isolation.verdict_on(ticket.raw):
                ticket.finish(refusal)
        self._tracing.arrived(tickets)
        self._intake.take((ticket for ticket in tickets if ticket.live), alone=bool(self._attempts.suspects))
        self.counters.count_read(tickets, arrived_s)
        return bool(tickets)

    def _prepare(self) -> bool:
        if settled := self._intake.resume_settled():
            self._isolation.arrived([ticket.raw for ticket in settled])
        moved = self._intake.advance(self._clock(), self.pacing.may_decode)
        self._tracker.unpacked(self._intake.take_unpacked_bytes())
        return moved

    def _collect(self) -> bool:
        results = self._engine.completed()
        for result in results:
            self._tracing.completed(result.batch)
            self.counters.count_completed(result, out_of_memory=self._budget.note(result, self._clock()))
            self._tracker.unpacked(settle(result, self._heads[result.batch.pass_index], write_found))
        if results:
            self.pacing.engine_moved()
        return bool(results)

    def _dispatch(self) -> bool:
        now_s = self._clock()
        if not self._engine.busy:
            self.pacing.engine_moved()
        dispatched = False
        while self._engine.capacity and (batch := self._next_batch(now_s)):
            self._tracing.submitted(batch)
            self._engine.submit(batch)
            self.counters.count_batch(batch, self._padded_tokens(batch), self.pacing.budget_tokens(batch), now_s)
            dispatched = True
        self._engine.backlogged = self.pacing.backlogged
        return dispatched

    def _next_batch(self, now_s: float) -> Batch | None:
        engine = self._engine
        return self._scheduler.next_batch(now_s, idle_threads=engine.threads - engine.busy, load=self.pacing.load.busy)

    def _publish(self) -> bool:
        if not self.pacing.may_publish():
            return False
        self.pacing.cadence.tried(self._clock())
        return self._publish_now()

    def _publish_now(self, leaving: Collection[Partition] = ()) -> bool:
        """One transaction, if there is anything to commit. `leaving`: partitions that are being given up in order."""
        release = self._tracker.release(self._source.positions(self._tracker.idle()))
        release = self._isolation.sealed(release, leaving)
        self.snapshots.held_back = self._tracker.held_back()
        if release.empty:
            return False
        began_s, self.snapshots.publishing = self._clock(), release.tickets
        with self._tracing.transaction(release.tickets) as substitutes:
            substitutes.update(self._sink.publish(release))
        self.snapshots.publishing = ()
        self._attempts.committed(release)
        self.recovery.succeeded(release.committable)
        ended_s = self._clock()
        self.pacing.cadence.committed(began_s, ended_s)
        self.counters.count_published(release.tickets, began_s, ended_s, substitutes)
        return bool(release.tickets)

    # ---- partitions come and go: called by the source, inside `poll` and `close`

    def assigned(self, partitions: Sequence[Partition]) -> None:
        """Track these partitions: their records follow."""
        self._tracker.assign(partitions)
        self._attempts.expect(partitions)
        self.counters.rebalances["assigned"] += 1
        log.info("partitions assigned: %s", names_of(partitions))

    def revoked(self, partitions: Sequence[Partition]) -> None:
        """Publish what is finished and forget the rest: the next owner reads it again."""
        try:
            if partitions and not self._stopping.is_set:
                self._collect()
                self._publish_now(partitions)
        finally:
            self._give_up(partitions, "revoked")

    def lost(self, partitions: Sequence[Partition]) -> None:
        """Forget these partitions and publish nothing for them: another worker owns them already."""
        self._give_up(partitions, "lost")

    def _give_up(self, partitions: Sequence[Partition], how: str) -> None:
        forgotten = self._tracker.unassign(partitions)
        self._attempts.leave(partitions)
        self._intake.drop_forgotten()
        self.counters.forgotten += forgotten
        self.counters.rebalances[how] += 1
        log.info(
            "partitions %s: %s; %d unpublished articles left to the next owner", how, names_of(partitions), forgotten
        )

    # ---- trouble, and the end

    def _recover(self, trouble: TransactionTrouble) -> None:
        """Forget everything in flight, settle the transaction, and read again from the committed offsets."""
        self.counters.recoveries += 1
        began_s = self._clock()
        with self.snapshots.recovering():
            self.counters.forgotten += self._tracker.forget()
            self._intake.drop_forgotten()
            self._settled = self.recovery.run(trouble, self._stopping)
            self._attempts.expect(self._tracker.partitions)
        self.pacing.skip_load()
        self.counters.recovery_s.add(self._clock() - began_s)

    def _finished(self) -> bool:
        return self._tracker.in_flight == 0 and self._source.caught_up()

    def _drain(self) -> None:
        """Wait for the batches on the device, publish what is finished, and leave the rest to the next owner."""
        self._stopping.set()
        if not self._settled:
            return
        deadline_s = self._clock() + self._limits.drain_timeout_s
        try:
            while self._engine.busy and self._clock() < deadline_s:
                self._wakeup.wait(self._limits.idle_wait_s)
                self._wakeup.clear()
                self._collect()
            self._publish_now(self._tracker.partitions)
        except TransactionTrouble as trouble:
            log.warning("the last transaction failed (%s): its articles will be read again", trouble)
        self.counters.forgotten += self._tracker.forget()

    def _take_back_attempts(self) -> None:
        """Let the end of this process count for no record: none is the cause."""
        if not self._attempts.counted_here:
            return
        self._tracker.forget()
        try:
            self.recovery.settle()
            self._isolation.take_back(self._tracker.partitions)
        except EnricherError as error:
            log.warning("the end of this process counts as an attempt at its next records: %s", error)

    def _close(self) -> None:
        """Close everything, even if closing one of them raises."""
        self._stopping.set()  # leaving the group revokes all partitions: nothing may be published then
        with self._guard("closing", self._limits.stall_timeout_s), ExitStack() as closing:
            for close in (self._source.close, self._sink.close, self._intake.close, self._engine.close):
                closing.callback(close)


def _is_no_records_doing(end: FatalError) -> bool:
    """Whether no record can be the cause of this end, and the process may still be able to commit offsets."""
    if isinstance(end, RecoveryExhausted):
        return end.settles
    if isinstance(end, Stalled):
        return end.undelivered
    return isinstance(end, BrokerError | SettingsError)
