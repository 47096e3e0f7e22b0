"""The loop: take in, hand to the model, take back, publish. One thread owns all state.

    admit -> intake (tokenizer) -> scheduler -> dispatch (engine) -> collect -> publish

It decides; the dependencies that it is given compute (`ports.py` says what it asks of them). Waiting is never a sleep: with
work under way it waits for the wakeup that the pools set, else in the source's poll until the next deadline.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from enricher.codec import write_entities
from enricher.core.assembly import settle
from enricher.core.offsets import OffsetTracker, names_of
from enricher.errors import TransactionTrouble
from enricher.records import Batch, BatchResult, Partition, Ticket
from enricher.runtime.wakeup import StopEvent, Wakeup
from enricher.runtime.watchdog import Guard
from enricher.stats.counters import Counters
from enricher.worker.budget import Budget
from enricher.worker.intake import Intake
from enricher.worker.isolation import Isolation
from enricher.worker.pacing import Limits, Pacing
from enricher.worker.pool import WorkerPool
from enricher.worker.ports import Sink, Source, Tracing
from enricher.worker.recovery import Recovery
from enricher.worker.snapshot import SnapshotReader

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Dependencies:
    """What the loop works with."""

    source: Source
    sink: Sink
    intake: Intake
    engine: WorkerPool[Batch, BatchResult]
    padded_tokens: Callable[[Batch], int]
    """What the device computes for a batch; forms differ."""
    recovery: Recovery
    tracing: Tracing
    counters: Counters
    clock: Callable[[], float]
    wakeup: Wakeup
    guard: Guard


class Worker:
    """Reads articles, enriches them, publishes them in the order of their offsets."""

    def __init__(self, dependencies: Dependencies, limits: Limits) -> None:
        self.counters = counters = dependencies.counters
        self._clock = clock = dependencies.clock
        self._wakeup, self._guard = dependencies.wakeup, dependencies.guard
        self._source, self._sink = dependencies.source, dependencies.sink
        self._intake, self._scheduler = dependencies.intake, dependencies.intake.scheduler
        self._engine, self._padded_tokens = dependencies.engine, dependencies.padded_tokens
        self.recovery = dependencies.recovery
        self._tracing = dependencies.tracing
        self._limits = limits
        self._tracker = OffsetTracker()
        self.pacing = Pacing(self._source, self._intake, self._engine, self._tracker, limits, clock)
        self._isolation = Isolation(self._source, self._sink, self.pacing, counters)
        self._attempts = self.pacing.attempts
        self.snapshots = SnapshotReader(
            self._source, self._intake, self._engine, self._tracker, clock, turned_s=clock()
        )
        self._stopping = StopEvent()
        self._next_publish_s = clock()
        self._settled = True
        self._budget = Budget(self._scheduler)

    def run(self, connected: Callable[[], object] = lambda: None) -> None:
        """Connect, call `connected`, work until `stop` or the source's end, then finish what is on the device."""
        try:
            self._settled = self.recovery.connect(self, self._stopping)
            if self._settled:
                connected()
            while not self._stopping.is_set and not self._finished():
                with self._guard("one turn of the loop", self._limits.stall_timeout_s):
                    self.step()
            with self._guard("draining", self._limits.drain_timeout_s + self._limits.stall_timeout_s):
                self._drain()
        finally:
            self._close()

    def step(self) -> None:
        """One turn. Any trouble in a transaction ends in the one recovery path."""
        self._wakeup.clear()
        self.snapshots.turned_s = self._clock()
        self._sink.serve()
        try:
            worked = self._admit()
            worked |= self._intake.advance(self._clock())
            worked |= self._collect()  # before the next batches go: it makes room for them
            worked |= self._dispatch()
            worked |= self._publish()
        except TransactionTrouble as trouble:
            self._recover(trouble)
        else:
            self.pacing.check_progress()
            if not worked and not self.pacing.waits_in_poll:
                self._wakeup.wait(self.pacing.wait_s(self._next_publish_s))

    def stop(self) -> None:
        """Ask the loop to drain and end; may be called from a signal handler."""
        self.snapshots.stopping = True
        self._stopping.set()
        self._wakeup.set()

    def _admit(self) -> bool:
        """Read no more than there is room for; a ticket for every record."""
        room = self.pacing.room
        if not self.pacing.may_poll(room):
            return False
        wait_s = self.pacing.wait_s(self._next_publish_s) if self.pacing.waits_in_poll else 0.0
        records = self._source.poll(max(room, 1), wait_s)
        self._isolation.arrived(records)
        arrived_s = self._clock()
        tickets = [Ticket(raw, arrived_s) for raw in records]
        for ticket in tickets:
            self._tracker.track(ticket)
            if refusal := self.recovery.refusal_of(ticket.raw) or self._isolation.verdict_on(ticket.raw):
                ticket.finish(refusal)
        self._tracing.arrived(tickets)
        self._intake.take(ticket for ticket in tickets if ticket.live)
        self.counters.count_read(tickets, arrived_s)
        return bool(tickets)

    def _dispatch(self) -> bool:
        """While the engine has room and the scheduler has a batch ready: submit."""
        now_s = self._clock()
        if not self._engine.busy:
            self.pacing.engine_moved()
        dispatched, budget_tokens = False, self._scheduler.max_batch_tokens
        while self._engine.room and (batch := self._scheduler.next_batch(now_s)):
            self._tracing.submitted(batch)
            self._engine.submit(batch)
            self.counters.count_batch(batch, self._padded_tokens(batch), budget_tokens, now_s)
            dispatched = True
        self._engine.backlogged = not self._intake.room or self._scheduler.queued_tokens >= budget_tokens
        return dispatched

    def _collect(self) -> bool:
        """Finished batches -> labels -> entities -> tickets."""
        done = self._engine.completed()
        for batch in done:
            self._tracing.completed(batch.batch)
            self.counters.out_of_memory += self._budget.note(batch)
            settle(batch, self._intake.scheme, write_entities)
        if done:
            self.pacing.engine_moved()
        return bool(done)

    def _publish(self) -> bool:
        """If due: what is finished, in offset order, in one transaction."""
        now_s = self._clock()
        if now_s < self._next_publish_s and not self._attempts.suspects:
            return False
        self._next_publish_s = now_s + self._limits.publish_interval_s
        return self._publish_now()

    def _publish_now(self, leaving: Collection[Partition] = ()) -> bool:
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
        self.counters.count_published(release.tickets, began_s, self._clock(), substitutes)
        return bool(release.tickets)

    def _finished(self) -> bool:
        return self._tracker.in_flight == 0 and self._source.caught_up()

    def assigned(self, partitions: Sequence[Partition]) -> None:
        """Ours now: their records will come."""
        self._tracker.assign(partitions)
        self._attempts.expect(partitions)
        self.counters.rebalances["assigned"] += 1
        log.info("partitions assigned: %s", names_of(partitions))

    def revoked(self, partitions: Sequence[Partition]) -> None:
        """Publish what is finished, forget the rest of these partitions: the next owner reads it again."""
        try:
            if partitions and not self._stopping.is_set:
                self._collect()
                self._publish_now(partitions)
        finally:
            self._give_up(partitions, "revoked")

    def lost(self, partitions: Sequence[Partition]) -> None:
        """Somebody else owns them already: publish nothing of theirs."""
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

    def _recover(self, trouble: TransactionTrouble) -> None:
        """Forget everything in flight, settle the transaction, read again from the committed offsets."""
        self.counters.recoveries += 1
        began_s = self._clock()
        with self.snapshots.recovering():
            self.counters.forgotten += self._tracker.forget()
            self._intake.drop_forgotten()
            self._settled = self.recovery.run(trouble, self._stopping)
            self._attempts.expect(self._tracker.partitions)
        self.counters.recovery_s.add(self._clock() - began_s)

    def _drain(self) -> None:
        """Finish what is on the device, publish it, leave the rest to the next owner."""
        self._stopping.set()
        if not self._settled:
            return  # forgotten, but not rewound: where the source stands says nothing about what is done
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

    def _close(self) -> None:
        """Close all, whatever one of them raises."""
        self._stopping.set()  # leaving the group revokes everything: nothing may be published then
        with self._guard("closing", self._limits.stall_timeout_s), ExitStack() as closing:
            for close in (self._source.close, self._sink.close, self._intake.tokenizer.close, self._engine.close):
                closing.callback(close)
