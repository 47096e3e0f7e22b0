"""Intake and pacing of a worker with several lanes; `rules/lanes.py` says why they differ. One topic needs neither."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from math import ceil
from types import MappingProxyType

from enricher.worker.loop.intake import Intake, MayDecode
from enricher.worker.loop.pacing import LoopLimits, Pacing
from enricher.worker.loop.ports import Scheduler
from enricher.worker.loop.waiting import value_bytes
from enricher.worker.records import Partition, Ticket
from enricher.worker.rules.lanes import LaneQueue, LaneScheduler, Turns
from enricher.worker.rules.long_articles import LongArticles
from enricher.worker.rules.rate import RateLimit

_AT_ONCE = 1 / 8
"""The most records of one poll, as a share of what a lane may have in flight."""
ONE_LANE: Mapping[str, float] = MappingProxyType({"": 1.0})
"""The shares of a worker without lanes."""


def lane_parts(
    shares: Mapping[str, float], new_scheduler: Callable[[], LaneQueue], limits: LoopLimits
) -> tuple[Scheduler, Callable[..., Intake], type[Pacing]]:
    """The scheduler for these lanes, and what makes their intake and pacing."""
    if len(shares) == 1:
        return new_scheduler(), Intake, Pacing
    scheduler = LaneScheduler({lane: new_scheduler() for lane in shares}, shares)
    return scheduler, partial(LaneIntake, shares=shares, lane_scheduler=scheduler, limits=limits), LanePacing


@dataclass(slots=True, kw_only=True)
class LaneIntake(Intake):
    """An intake in which articles wait by lane, and come in by turns.

    `lane_scheduler`: its scheduler. `limits`: a lane sends no article while `max_queued_tokens` of its windows wait for the
    device, and all lanes together send `max_articles_per_second`.
    """

    shares: Mapping[str, float]
    lane_scheduler: LaneScheduler
    limits: LoopLimits
    rate: RateLimit = field(init=False)
    _lanes: dict[str, deque[Ticket]] = field(init=False)
    _turns: Turns = field(init=False)

    def __post_init__(self) -> None:
        # `super()` does not work in a class with slots, which is made twice.
        Intake.__post_init__(self)
        self.rate = RateLimit(self.limits.max_articles_per_second, self.clock())
        self._lanes, self._turns = {lane: deque() for lane in self.shares}, Turns(self.shares)
        self._long = LongArticles(len(self.shares))

    @property
    def busy(self) -> bool:
        """True while tickets are here or with the tokenizer; those in the lanes will be."""
        return any(self._lanes.values()) or self._has_work

    def take(self, tickets: Iterable[Ticket], *, alone: bool = False) -> None:
        """Queue new tickets, each in its lane. One that is `alone` waits for nobody."""
        if alone:
            Intake.take(self, tickets, alone=True)
            return
        for ticket in tickets:
            self._lanes[ticket.raw.partition.topic].append(ticket)

    def advance(self, now_s: float, may_decode: MayDecode) -> bool:
        """Go on as without lanes; articles come in from the lanes as they are decoded."""
        before = sum(map(len, self._lanes.values()))
        return Intake.advance(self, now_s, may_decode) or sum(map(len, self._lanes.values())) < before

    def drop_forgotten(self) -> None:
        """Drop forgotten tickets and their windows."""
        for lane, tickets in self._lanes.items():
            self._lanes[lane] = deque(ticket for ticket in tickets if ticket.live)
        Intake.drop_forgotten(self)

    def _next_undecoded(self, may_decode: MayDecode) -> Ticket | None:
        """The next article of the lanes: each comes in when the one before it is decoded, so that none waits in between.

        A lane whose small records are unpacked to many long articles waits until some are gone, and the others go on.
        """
        now_s = self.clock()
        full = self._long.full_lanes

        def may(ticket: Ticket) -> bool:
            return ticket.raw.partition.topic not in full and may_decode(ticket)

        first = partial(Intake._next_undecoded, self, may)  # noqa: SLF001  the base class's; `super()` does not work with slots
        while not (found := first()) and self._let_in(now_s, full):
            pass
        return found

    def _let_in(self, now_s: float, full: Collection[str]) -> bool:
        """Let in the article of the lane whose turn it is; False if none may come."""
        ready = [
            lane
            for lane, tickets in self._lanes.items()
            if tickets
            and lane not in full
            and self.lane_scheduler.queued_tokens_of(lane) < self.limits.max_queued_tokens
        ]
        if not ready or not self.capacity or not self.rate.allows(1, now_s):
            return False
        lane = self._turns.order(ready)[0]
        ticket = self._lanes[lane].popleft()
        self._turns.note(lane, value_bytes(ticket))
        self.rate.taken(1, now_s)
        Intake.take(self, [ticket])
        return True


@dataclass
class LanePacing(Pacing):
    """Reads records as long as a partition has room, and holds those that have none.

    Each partition has an equal part of what its lane may have. If a lane were held as a whole, those partitions whose
    records come first after each hold would have all of its room.
    """

    intake: LaneIntake
    _in_lane: Counter[str] = field(default_factory=Counter, init=False)
    """How many partitions of each lane are assigned."""
    _full: frozenset[Partition] = field(default=frozenset(), init=False)
    """Partitions that are held, because they fill their part of what may be in flight."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.rate = self.intake.rate

    @property
    def capacity(self) -> int:
        """How many records may be read now, of whichever partitions they are that are not held.

        One poll may bring more for a partition than it has room for, but no more than a small part of the room of a lane.
        """
        if self.attempts.suspects:
            return super().capacity
        most = self.limits.max_in_flight
        at_once = ceil(_AT_ONCE * most / len(self.intake.shares))
        if self.tracker.partitions and self._full.issuperset(self.tracker.partitions):
            return 0
        room = min(most - self.tracker.in_flight, at_once)
        return ceil(max(0, room) / (2 if self.intake.schemas else 1))

    def update_held(self) -> Collection[Partition]:
        """Choose also partitions that fill their part, until half of it is free again."""
        self._in_lane = Counter(each.topic for each in self.tracker.partitions)
        held = super().update_held()
        self._full = frozenset(
            each
            for each in self.tracker.partitions
            if self._fills(each, self._share_of(each), self.tracker.record_bytes_of(each), held=each in self._full)
        )
        return {*held, *self._full}

    def note_read(self, count: int, now_s: float) -> None:
        """Nothing: the limit of the rate counts articles when their lane sends them, so none uses up that of another."""

    def _fills(self, partition: Partition, part: float, size_bytes: int, *, held: bool) -> bool:
        """Whether its articles, or these bytes of theirs, take this part of what may be in flight; if it is held, half."""
        limits = self.limits
        part *= 0.5 if held else 1.0
        enough_articles = self.tracker.articles_of(partition) >= max(1.0, part * limits.max_in_flight)
        return enough_articles or size_bytes >= part * limits.max_in_flight_bytes

    def _share_of(self, partition: Partition) -> float:
        return 1 / (len(self.intake.shares) * self._in_lane[partition.topic])
