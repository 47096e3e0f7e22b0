"""How many records the loop may read, when it may publish, how long it may wait, and whether work still makes progress.

It reads the queues of other parts. It changes only whether the source is paused, and the size of batches after a batch did
not fit into the device's memory.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import ceil

from enricher.errors import Stalled
from enricher.worker.loop.intake import Intake
from enricher.worker.loop.pool import WorkerPool
from enricher.worker.loop.ports import Scheduler, Source
from enricher.worker.records import Batch, BatchResult, Partition, Ticket
from enricher.worker.rules.attempts import Attempts
from enricher.worker.rules.load import Cadence, Load
from enricher.worker.rules.offsets import OffsetTracker
from enricher.worker.rules.read_limits import RateLimit

log = logging.getLogger(__name__)
_SHORTEST_POLL = 1 / 4
"""The poll interval at low load, as a share of the setting."""


@dataclass(frozen=True, slots=True)
class LoopLimits:
    """The bounds of every queue and wait in the loop; `worker/settings/worker.py` explains those without a default."""

    max_in_flight: int
    max_in_flight_bytes: int
    max_articles_per_second: float
    max_queued_tokens: int
    publish_interval_s: float
    publish_share: float
    engine_timeout_s: float
    stall_timeout_s: float
    drain_timeout_s: float
    max_deaths_at_offset: int
    """How many processes may end at one committed offset before articles are taken alone; 0: any number."""
    poll_interval_s: float = 0.02
    """The time between two polls while the model is busy; an article may wait this long before it is seen."""
    idle_wait_s: float = 0.25
    """The longest wait of the loop. A record or a wakeup ends it earlier; only a request to stop waits for its end."""
    pause_after_s: float = 2.0
    """How long there may be no capacity before the partitions are paused: far below the group's poll interval, and longer
    than a batch takes, because pausing discards what the client has fetched."""


@dataclass
class Pacing:
    """Reads the state of the other parts for the loop."""

    source: Source
    intake: Intake
    scheduler: Scheduler
    engine: WorkerPool[Batch, BatchResult]
    tracker: OffsetTracker
    limits: LoopLimits
    clock: Callable[[], float]
    attempts: Attempts = field(init=False)
    """Which partitions may hold a record that kills the process."""
    load: Load = field(init=False)
    cadence: Cadence = field(init=False)
    rate: RateLimit = field(init=False)
    engine_waits_s: float = field(default=0.0, init=False)
    """Seconds since the engine last returned a batch, while it has work; as of the last turn. Safe in any thread."""
    tokenizer_waits_s: float = field(default=0.0, init=False)
    """Seconds since the tokenizer last returned a result, while it has work; as of the last turn. Safe in any thread."""
    _waited_s: float = field(default=0.0, init=False)
    _idle_since_s: float | None = field(default=None, init=False)
    """The moment since which nothing is in progress, as of the last turn; None while something is in progress."""
    _paused: bool = field(default=False, init=False)
    _full_since_s: float | None = field(default=None, init=False)
    _engine_moved_s: float = field(init=False)

    def __post_init__(self) -> None:
        now_s, limits = self.clock(), self.limits
        self._engine_moved_s = now_s
        self.attempts = Attempts(limits.max_deaths_at_offset, limits.max_in_flight)
        self.load = Load(self.engine.threads, now_s)
        self.cadence = Cadence(limits.publish_interval_s, limits.publish_share, now_s)
        self.rate = RateLimit(limits.max_articles_per_second, now_s)

    @property
    def engine_timeout_s(self) -> float:
        """The bound of `engine_waits_s` and `tokenizer_waits_s`."""
        return self.limits.engine_timeout_s

    @property
    def capacity(self) -> int:
        """How many records may be read now."""
        limits, tracker = self.limits, self.tracker
        if tracker.in_flight_bytes >= limits.max_in_flight_bytes:
            return 0
        if self.attempts.suspects:  # one record beside those that wait, and no thread still works on a forgotten one
            processing = self.busy or tracker.count_unfinished() > self.intake.waiting_articles
            # Windows of an article that another of its windows has finished: they may still kill the process.
            processing |= self.scheduler.queued_windows > 0
            return int(not processing and tracker.in_flight < limits.max_in_flight)
        if self.scheduler.queued_tokens >= limits.max_queued_tokens:
            return 0
        room = limits.max_in_flight - tracker.in_flight
        if self.intake.schemas:
            # A record that comes may have to wait, so one poll must not take all the capacity that other partitions need.
            room = ceil(room / 2)
        return self.rate.allows(max(0, min(room, self.intake.capacity)), self.clock())

    def note_read(self, count: int, now_s: float) -> None:
        """Note that records were read, for the limit of their rate."""
        self.rate.count(count, now_s)

    def update_held(self) -> Collection[Partition]:
        """Choose the partitions to hold, which have an article that waits for its schema."""
        return frozenset(self.intake.waiting_tickets())

    def may_decode(self, ticket: Ticket) -> bool:
        """Whether a record may be decoded now.

        While articles take more than `max_in_flight_bytes` beyond their records, only the oldest record of a partition
        may be decoded: a small record can be a large article, and nothing is released before the oldest record is
        finished.
        """
        return self.tracker.unpacked_bytes < self.limits.max_in_flight_bytes or self.tracker.is_next(ticket)

    @property
    def backlogged(self) -> bool:
        """True while more work waits than the device takes: nothing more may be read, or a full batch waits."""
        return not self.intake.capacity or self.scheduler.queued_tokens >= self.scheduler.max_batch_tokens

    def waiting_tickets(self) -> Mapping[Partition, int]:
        """How many tickets wait for a schema, per partition with any."""
        return self.intake.waiting_tickets()

    def only_waiting(self) -> list[Partition]:
        """Partitions whose unfinished tickets all wait for a schema, with at least one of them."""
        waiting = self.waiting_tickets()
        return [
            partition for partition, count in waiting.items() if count == self.tracker.count_unfinished([partition])
        ]

    @property
    def busy(self) -> bool:
        """True while a pool has work: its thread will set the wakeup."""
        return self.intake.busy or self.engine.busy > 0

    @property
    def waits_in_poll(self) -> bool:
        """True if the loop should wait in the next poll: no thread will set the wakeup, and a record may arrive."""
        return not self.busy and self.capacity > 0

    def may_poll(self, capacity: int) -> bool:
        """Whether to poll in this turn.

        After `pause_after_s` without capacity the source is paused and polled again, so that the group does not remove
        this worker. Pausing earlier would discard what the client has prefetched.
        """
        now_s = self.clock()
        if capacity:
            self._full_since_s = None
            if self._paused:
                self.source.resume()
                self._paused = False
            return True
        self._full_since_s = now_s if self._full_since_s is None else self._full_since_s
        if not self._paused and now_s - self._full_since_s > self.limits.pause_after_s:
            self.source.pause()
            self._paused = True
        return self._paused

    def may_publish(self) -> bool:
        """Whether to publish in this turn.

        It may if a transaction is due, if something waits for a commit (a suspect partition, a start), or if an article is
        finished and transactions may take the time.
        """
        now_s, cadence = self.clock(), self.cadence
        if self.busy or self.scheduler.queued_windows:
            self._idle_since_s = None
        elif self._idle_since_s is None:
            self._idle_since_s = now_s
        if now_s >= cadence.latest_s or self.attempts.suspects or self.source.waits_for_commit:
            return True
        return now_s >= self._earliest_publish_s and self.tracker.publishable()

    @property
    def _earliest_publish_s(self) -> float:
        # The average follows a backlog only after a second or two.
        return self.cadence.earliest_s(1.0 if self.engine.backlogged else self.load.busy, self._idle_since_s)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Wrap a wait of the loop, so that it does not count as load."""
        began_s = self.clock()
        try:
            yield
        finally:
            self._waited_s += self.clock() - began_s

    def measure_load(self) -> None:
        """Add the last turn to the load; called before the turn collects or submits batches."""
        tokenizer = self.intake.tokenizer
        self.load.note(
            self.clock(),
            running=self.engine.busy,
            tokenizing=tokenizer.busy / tokenizer.threads,
            waited_s=self._waited_s,
        )
        self._waited_s = 0.0

    def skip_load(self) -> None:
        """Leave the time since `measure_load` out of the load: connecting and recovering say nothing about the traffic."""
        self.load.skip(self.clock())
        self._waited_s = 0.0

    def wait_s(self) -> float:
        """Seconds until the next deadline of the loop; a wakeup or a record may come earlier."""
        now_s = self.clock()
        deadlines = [now_s + self.limits.idle_wait_s]
        if self.busy and self.capacity:
            deadlines.append(now_s + max(_SHORTEST_POLL, self.load.busy) * self.limits.poll_interval_s)
        if wait_s := self.rate.wait_s(now_s):  # 0: what is waited for is something else
            deadlines.append(now_s + wait_s)
        due_s = self.scheduler.next_due_s()
        if due_s is not None and self.engine.capacity:
            deadlines.append(due_s)
        if self.tracker.publishable():
            deadlines.append(self._earliest_publish_s)
        return max(0.0, min(deadlines) - now_s)

    def engine_moved(self) -> None:
        """Note that the engine returned a batch, or is about to get its first one after being idle."""
        self._engine_moved_s = self.clock()

    def check_progress(self) -> None:
        """Raise Stalled if the engine or the tokenizer hangs, or a ticket is lost: its partition would wait forever."""
        now_s, limit_s = self.clock(), self.limits.engine_timeout_s
        self.engine_waits_s = now_s - self._engine_moved_s if self.engine.busy else 0.0
        self.tokenizer_waits_s = self.intake.tokenizer_waits_s(now_s)
        if self.engine_waits_s > limit_s:
            message = f"the model has not finished a batch for {limit_s:g} s"
            raise Stalled(message)
        if self.tokenizer_waits_s > limit_s:
            message = f"the tokenizer has not finished anything for {limit_s:g} s"
            raise Stalled(message)
        if self.busy or self.scheduler.queued_windows:
            return
        if self.tracker.count_unfinished() > self.intake.waiting_articles:
            message = "an article is in flight, but waits neither for a schema nor the tokenizer nor the engine"
            raise Stalled(message)


class Budget:
    """Lowers the budget of batches in `scheduler` after one did not fit into the device's memory.

    Such a batch costs no window: the engine ran it in parts before it came here. The budget never rises again: a restart
    begins with the configured one, and the metric of the budget shows that it is lower.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def note(self, done: BatchResult) -> bool:
        """Lower the budget to the part that fitted, but by half at most; returns whether the batch was run in parts.

        Another process that took the memory for a moment must not leave tiny batches until a restart; a batch that is still
        too large comes back and is halved again.
        """
        fits_tokens = done.fits_tokens
        # A single window has no smaller part, and no budget makes such a batch fit.
        if fits_tokens is None or len(done.batch.windows) == 1:
            return False
        queue = self._scheduler
        tokens = queue.tokens_of(done.batch)
        # Batches of an older, larger budget may still be under way, and they say nothing about the present one. Nor does a
        # batch with a window that fails even alone, or a few such articles would make all batches small.
        if fits_tokens < queue.max_batch_tokens and tokens <= queue.max_batch_tokens and not done.failures:
            fits_tokens = max(fits_tokens, queue.max_batch_tokens // 2)
            queue.limit_budget(fits_tokens)
            log.warning(
                "out of memory with a batch of %d tokens: batches have at most %d from now on (batching.max_batch_tokens), "
                "until a restart",
                tokens,
                fits_tokens,
            )
        return True
