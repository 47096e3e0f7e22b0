"""An assigned partition: its state, its position, and what each event makes of them.

Does not know the client, which fetches it while it is READING. `Assignment` tells the client, and tells this what happened.
A pause of all partitions is no state: it ends where it began.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from confluent_kafka import KafkaError

from enricher.errors import TransactionTrouble
from enricher.worker.kafka.reading.damage import Damage
from enricher.worker.kafka.reading.silence import Silence
from enricher.worker.records import Partition, Start

log = logging.getLogger(__name__)


class State(Enum):
    """Each says what a partition waits for."""

    SEARCHING = "it is not known yet where it begins"
    UNCOMMITTED = "its start must be committed before anything is read"
    READING = "its records are expected"
    HELD = "nothing more of it is wanted for now"
    FINISHED = "the range that the group replays ends here"


class Event(Enum):
    """Each says what happens to a partition that is assigned. Records, ends and damage change no state."""

    REWIND = "it goes back to its committed offset"
    FIND = "its start is known, but not committed"
    BEGIN = "its start is known"
    HOLD = "the loop has enough of it, or another one delivers nothing beside it"
    RELEASE = "it is wanted again"
    FINISH = "it has been read to the end of the range"


AFTER: Final[Mapping[State, Mapping[Event, State]]] = {
    State.SEARCHING: {
        Event.REWIND: State.SEARCHING,
        Event.FIND: State.UNCOMMITTED,
        Event.BEGIN: State.READING,
    },
    State.UNCOMMITTED: {
        Event.REWIND: State.SEARCHING,
        Event.FIND: State.UNCOMMITTED,
        Event.BEGIN: State.READING,
    },
    State.READING: {
        Event.REWIND: State.SEARCHING,
        Event.HOLD: State.HELD,
        Event.FINISH: State.FINISHED,
    },
    State.HELD: {
        Event.REWIND: State.SEARCHING,
        Event.RELEASE: State.READING,
        Event.FINISH: State.FINISHED,
    },
    State.FINISHED: {
        Event.REWIND: State.SEARCHING,
    },
}
"""The state after each event that a state allows. Any other is an error of this program."""


@dataclass(slots=True, eq=False)
class AssignedPartition:
    """One partition from its assignment until it leaves.

    `log_end`: asks for the end of the partition's log. Raises TransactionTrouble if no broker answers. `unknown_since_s`:
    since when its start has been unknown; None once it is known.
    """

    name: Partition
    log_end: Callable[[Partition], int]
    unknown_since_s: float | None
    progress_s: float = field(init=False)
    """While its start is unknown: when a look-up made progress last."""
    state: State = State.SEARCHING
    start: Start | None = None
    """The beginning; None while it is unknown, or not committed. Records that come before that are dropped."""
    uncommitted: int | None = None
    """While UNCOMMITTED: the offset to begin at."""
    next: int | None = None
    """The offset after the last delivered record; None while nothing was delivered."""
    end: int | None = None
    """The partition's end, if it was reached and nothing came since."""
    held_end: int | None = None
    """While HELD: the end of the log, once it is known."""
    silence: Silence | None = None
    """It is None while no records are expected."""
    damage: Damage = field(default_factory=Damage)
    _epochs: list[tuple[int, int]] = field(default_factory=list)
    """Changes of the leader epoch: the first offset to commit with it, and the epoch."""

    def __post_init__(self) -> None:
        self.progress_s = self.unknown_since_s or 0.0

    @property
    def position(self) -> int | None:
        """The offset of the next record to deliver; None while the start is unknown."""
        return self.next if self.next is not None or self.start is None else self.start.offset

    @property
    def to_commit(self) -> int | None:
        """The end, if the partition was read to it, or the start that is not committed yet."""
        return self.uncommitted if self.end is None else self.end

    # ---- events that change the state

    def rewind(self, now_s: float) -> None:
        """Forget the position: `begin` says where reading goes on."""
        self._become(Event.REWIND)
        self.start = self.uncommitted = self.next = self.end = self.held_end = self.silence = None
        self._epochs = []
        self.unknown_since_s = now_s if self.unknown_since_s is None else self.unknown_since_s
        self.progress_s = now_s

    def find(self, offset: int, now_s: float) -> None:
        """The partition begins here, once this offset is committed."""
        self._become(Event.FIND)
        if self.uncommitted != offset:
            self.uncommitted, self.progress_s = offset, now_s

    def begin(self, start: Start, leader_epoch: int | None = None) -> None:
        """Records are delivered from `start` on. `leader_epoch`: of the record before it, if known."""
        self._become(Event.BEGIN)
        self.start, self.uncommitted, self.unknown_since_s = start, None, None
        self._epochs = [] if leader_epoch is None else [(start.offset, leader_epoch)]
        self._finish_behind(start.offset)

    def hold(self) -> None:
        """Deliver nothing until `release`."""
        self._become(Event.HOLD)
        self.silence = self.held_end = None

    def release(self) -> None:
        """Go on at the position."""
        self._become(Event.RELEASE)
        self.held_end = None

    def finish(self) -> None:
        """The partition was read to the end of its range, which is committed whatever lies behind."""
        self._become(Event.FINISH)
        assert self.start is not None, "it is being read"
        assert self.start.until is not None, "only a range has an end"
        self.next = self.end = max(self.start.offset, self.start.until)
        self.silence = self.held_end = None

    # ---- what the client delivers

    def deliver(self, offset: int, leader_epoch: int | None, now_s: float) -> bool:
        """Note a record. False if it must be dropped, because the start is unknown or the range ends before it.

        Raises TransactionTrouble if offsets go back, because then nothing in flight belongs to this log any more.
        """
        if self.start is None or self.state is State.FINISHED:
            return False
        self._check(offset, self.start.offset)
        if self.start.until is not None and offset >= self.start.until:
            self._finish_behind(offset)
            return False
        self.next, self.end = offset + 1, None
        if leader_epoch is not None and leader_epoch >= 0 and (not self._epochs or self._epochs[-1][1] != leader_epoch):
            self._epochs.append((offset + 1, leader_epoch))
        if self.silence:
            self.silence.hear(now_s)
        if self.damage.offset is not None:
            self.damage.clear()
        self._finish_behind(offset + 1)
        return True

    def reach_end(self, end: int, now_s: float) -> bool:
        """Note that the partition's end was reached. Returns and raises as `deliver` does."""
        if self.start is None or self.state is State.FINISHED:
            return False
        self._check(end, self.start.offset)
        self.next = self.end = end
        if self.silence:
            self.silence.hear(now_s)
        self._finish_behind(end)
        return True

    def is_damaged(self, error: KafkaError | None, offset: int, now_s: float) -> bool:
        """Whether the batch at the position has to be fetched again, as `Damage.is_seen` says."""
        if error is None and self.damage.offset is None:
            return False
        expected = self.position
        return expected is not None and self.damage.is_seen(error, self.name, offset, expected, now_s)

    def epoch_before(self, offset: int) -> int | None:
        """The leader epoch of the record before `offset`. Drops what lies before it, since committed offsets only grow."""
        epochs = self._epochs
        while len(epochs) > 1 and epochs[1][0] <= offset:
            del epochs[0]
        return epochs[0][1] if epochs and epochs[0][0] <= offset else None

    def _finish_behind(self, position: int) -> None:
        if self.start is not None and self.start.until is not None and position >= self.start.until:
            self.finish()

    def _become(self, event: Event) -> None:
        if event not in AFTER[self.state]:
            message = f"{self.name.topic}[{self.name.number}]: no {event.name} while {self.state.name}"
            raise RuntimeError(message)
        self.state = AFTER[self.state][event]

    def _check(self, offset: int, start: int) -> None:
        """Raise TransactionTrouble if the partition continues at an offset before its position.

        The client begins at the beginning if it asked for an offset that does not exist: one that it read from a damaged
        batch, or that of a log which lost its end. Only such a log is read again.
        """
        expected = start if self.next is None else self.next
        if offset >= expected:
            return
        where = f"{self.name.topic}[{self.name.number}]"
        if self.next is None and (end := self.log_end(self.name)) < start:
            log.warning("%s has lost its end: it ends at %d, before the committed offset %d", where, end, start)
            return
        message = f"{where} continues at offset {offset} after {expected}: was the topic recreated or truncated?"
        raise TransactionTrouble(message)
