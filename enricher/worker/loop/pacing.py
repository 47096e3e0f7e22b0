"""How many records the loop may read, when it may publish, how long it may wait, and whether work still makes progress.

Reads the queues of other parts and changes nothing but pausing and resuming the source.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil

from enricher.errors import Stalled
from enricher.worker.loop.intake import Intake
from enricher.worker.loop.pool import WorkerPool
from enricher.worker.loop.ports import Scheduler, Source
from enricher.worker.records import Batch, BatchResult, Partition, Ticket
from enricher.worker.rules.attempts import Attempts
from enricher.worker.rules.load import Cadence, Load
from enricher.worker.rules.offsets import OffsetTracker
from enricher.worker.rules.rate import RateLimit

_SHORTEST_POLL = 1 / 4
"""The poll interval at low load, as a share of the setting."""


@dataclass(frozen=True, slots=True)
class LoopLimits:
    """The bounds of every queue and wait in the loop; `worker/settings/groups.py` explains each."""

    max_in_flight: int
    max_in_flight_bytes: int
    max_articles_per_second: float
    waiting_share: float
    max_queued_tokens: int
    publish_interval_s: float
    publish_share: float
    poll_interval_s: float
    idle_wait_s: float
    pause_after_s: float
    engine_timeout_s: float
    stall_timeout_s: float
    drain_timeout_s: float
    max_deaths_at_offset: int


class Pacing:
    """Reads the state of the other parts for the loop."""

    def __init__(
        self,
        source: Source,
        intake: Intake,
        scheduler: Scheduler,
        engine: WorkerPool[Batch, BatchResult],
        tracker: OffsetTracker,
        limits: LoopLimits,
        clock: Callable[[], float],
    ) -> None:
        self._source = source
        self._intake = intake
        self._scheduler = scheduler
        self._queues = [scheduler.of_pass(index) for index in range(len(intake.cutters))]
        self._engine = engine
        self._tracker = tracker
        self._limits = limits
        self._clock = clock
        self.attempts = Attempts(limits.max_deaths_at_offset, limits.max_in_flight)
        """Which partitions may hold a record that kills the process."""
        self.load = Load(engine.threads, clock())
        self.cadence = Cadence(limits.publish_interval_s, limits.publish_share, clock())
        self.rate = RateLimit(limits.max_articles_per_second, clock())
        self._waited_s = 0.0
        self._paused = False
        self.held: frozenset[Partition] = frozenset()
        """Partitions that are not read, because articles that wait for schemas fill their part of what may be in flight."""
        self._unpacked: frozenset[Partition] = frozenset()
        """Partitions with waiting articles, behind which others have been unpacked to half of that part."""
        self._full_since_s: float | None = None
        self._engine_moved_s = clock()
        self.engine_waits_s = 0.0
        """Seconds since the engine last returned a batch, while it has work; as of the last turn. Safe in any thread."""
        self.tokenizer_waits_s = 0.0
        """The same for the tokenizer."""

    @property
    def engine_timeout_s(self) -> float:
        """The bound of both."""
        return self._limits.engine_timeout_s

    @property
    def capacity(self) -> int:
        """How many records may be read now."""
        limits, tracker = self._limits, self._tracker
        if tracker.in_flight_bytes >= limits.max_in_flight_bytes:
            return 0
        if self.attempts.suspects:  # one record beside those that wait, and no thread still works on a forgotten one
            processing = self.busy or tracker.count_unfinished() > self._intake.waiting_articles
            # Windows of an article that another of its windows has finished: they may still kill the process.
            processing |= self._scheduler.queued_windows > 0
            return int(not processing and tracker.in_flight < limits.max_in_flight)
        if self._scheduler.queued_tokens >= limits.max_queued_tokens:
            return 0
        room = limits.max_in_flight - tracker.in_flight
        if self._intake.schemas:
            # What comes may have to wait, so one poll must not take all that other partitions need.
            room = ceil(room / 2)
        return self.rate.allows(max(0, min(room, self._intake.capacity)), self._clock())

    def note_read(self, count: int, now_s: float) -> None:
        """Note that records were read, for the limit of their rate."""
        self.rate.taken(count, now_s)

    def update_held(self) -> Collection[Partition]:
        """Choose the partitions to hold from now on: what waits of them, and what is behind it, would take all the room.

        A partition whose articles wait has an equal part of `waiting_share`. Beyond it, it is held until half is free again.
        """
        waiting = self._intake.waiting_tickets()
        self.held = frozenset(
            each
            for each in waiting
            if self._fills(each, self._part_of(each), self._tracker.bytes_of(each), held=each in self.held)
        )
        half_bytes = 0.5 * self._limits.max_in_flight_bytes
        self._unpacked = frozenset(
            each for each in waiting if self._tracker.unpacked_bytes_of(each) >= self._part_of(each) * half_bytes
        )
        return self.held

    def _part_of(self, _partition: Partition) -> float:
        """The share of what may be in flight that a partition with waiting articles has."""
        return self._limits.waiting_share / max(1, len(self._tracker.partitions))

    def _fills(self, partition: Partition, part: float, size_bytes: int, *, held: bool) -> bool:
        """Whether its articles, or these bytes of theirs, take this part of what may be in flight; if it is held, half."""
        limits = self._limits
        part *= 0.5 if held else 1.0
        enough_articles = self._tracker.articles_of(partition) >= max(1.0, part * limits.max_in_flight)
        return enough_articles or size_bytes >= part * limits.max_in_flight_bytes

    def may_decode(self, ticket: Ticket) -> bool:
        """Whether a record may be decoded now.

        While articles take more than `max_in_flight_bytes` beyond their records, only the oldest record of a partition
        may: a small record can be a large article, and nothing is released before the oldest one is finished. The same
        counts for a partition with waiting articles, before those behind them take the room of other partitions.
        """
        may_unpack = self._tracker.unpacked_bytes < self._limits.max_in_flight_bytes
        if may_unpack and ticket.raw.partition not in self._unpacked:
            return True
        return self._tracker.is_next(ticket)

    def budget_tokens(self, batch: Batch) -> int:
        """The budget of a batch of the same pass."""
        return self._queues[batch.pass_index].max_batch_tokens

    @property
    def backlogged(self) -> bool:
        """True while there is more work than the device has: nothing more may be read, or a full batch of a pass waits."""
        return not self._intake.capacity or any(queue.queued_tokens >= queue.max_batch_tokens for queue in self._queues)

    def waiting_tickets(self) -> Mapping[Partition, int]:
        """How many tickets wait for a schema, per partition with any."""
        return self._intake.waiting_tickets()

    def only_waiting(self) -> list[Partition]:
        """Partitions whose unfinished tickets all wait for a schema, with at least one of them."""
        waiting = self.waiting_tickets()
        return [
            partition for partition, count in waiting.items() if count == self._tracker.count_unfinished([partition])
        ]

    @property
    def busy(self) -> bool:
        """True while a pool has work: its thread will set the wakeup."""
        return self._intake.busy or self._engine.busy > 0

    @property
    def waits_in_poll(self) -> bool:
        """True if the loop should wait in the next poll: no thread will set the wakeup, and a record may arrive."""
        return not self.busy and self.capacity > 0

    def may_poll(self, capacity: int) -> bool:
        """Whether to poll in this turn.

        After `pause_after_s` without capacity the source is paused and polled again, so that the group does not remove
        this worker. Pausing earlier would discard what the client has prefetched.
        """
        now_s = self._clock()
        if capacity:
            self._full_since_s = None
            if self._paused:
                self._source.resume()
                self._paused = False
            return True
        self._full_since_s = now_s if self._full_since_s is None else self._full_since_s
        if not self._paused and now_s - self._full_since_s > self._limits.pause_after_s:
            self._source.pause()
            self._paused = True
        return self._paused

    def may_publish(self) -> bool:
        """Whether to publish in this turn.

        If a transaction is due, if something waits for a commit (a suspect partition, a start), or if an article is finished
        and transactions may take the time.
        """
        now_s, cadence = self._clock(), self.cadence
        if now_s >= cadence.latest_s or self.attempts.suspects or self._source.waits_for_commit:
            return True
        return now_s >= self._earliest_publish_s and self._tracker.publishable()

    @property
    def _earliest_publish_s(self) -> float:
        # The average follows a backlog only after a second or two.
        return self.cadence.earliest_s(1.0 if self._engine.backlogged else self.load.busy)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Wrap what the loop does because it has nothing to do, so that it does not count as load."""
        began_s = self._clock()
        try:
            yield
        finally:
            self._waited_s += self._clock() - began_s

    def measure_load(self) -> None:
        """Add the last turn to the load; called before the turn collects or submits batches."""
        self.load.note(self._clock(), running=self._engine.busy, waited_s=self._waited_s)
        self._waited_s = 0.0

    def skip_load(self) -> None:
        """Leave the time since `measure_load` out of the load: connecting and recovering say nothing about the traffic."""
        self.load.skip(self._clock())
        self._waited_s = 0.0

    def wait_s(self) -> float:
        """Seconds until the next deadline of the loop; a wakeup or a record may come earlier."""
        now_s = self._clock()
        deadlines = [now_s + self._limits.idle_wait_s]
        if self.busy and self.capacity:
            deadlines.append(now_s + max(_SHORTEST_POLL, self.load.busy) * self._limits.poll_interval_s)
        if wait_s := self.rate.wait_s(now_s):  # 0: what is waited for is something else
            deadlines.append(now_s + wait_s)
        due_s = self._scheduler.next_due_s()
        if due_s is not None and self._engine.capacity:
            deadlines.append(due_s)
        if self._tracker.publishable():
            deadlines.append(self._earliest_publish_s)
        return max(0.0, min(deadlines) - now_s)

    def engine_moved(self) -> None:
        """Note that the engine returned a batch, or is about to get its first one after being idle."""
        self._engine_moved_s = self._clock()

    def check_progress(self) -> None:
        """Raise Stalled if the engine or the tokenizer hangs, or a ticket is lost: its partition would wait forever."""
        now_s, limit_s = self._clock(), self._limits.engine_timeout_s
        self.engine_waits_s = now_s - self._engine_moved_s if self._engine.busy else 0.0
        self.tokenizer_waits_s = self._intake.tokenizer_waits_s(now_s)
        if self.engine_waits_s > limit_s:
            message = f"the model has not finished a batch for {limit_s:g} s"
            raise Stalled(message)
        if self.tokenizer_waits_s > limit_s:
            message = f"the tokenizer has not finished anything for {limit_s:g} s"
            raise Stalled(message)
        if self.busy or self._scheduler.queued_windows:
            return
        if self._tracker.count_unfinished() > self._intake.waiting_articles:
            message = "an article is in flight, but waits neither for a schema nor the tokenizer nor the engine"
            raise Stalled(message)
