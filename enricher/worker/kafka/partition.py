"""An assigned partition: its state, its position, what each event makes of them, and what goes wrong with its delivery.

Does not know the client, which fetches a partition while it is READING. `Assignment` talks to the client, and reports
here what happened. A pause of all partitions is no state: it ends where it began.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from confluent_kafka import KafkaError

from enricher.errors import BrokerError, TransactionTrouble
from enricher.worker.kafka.errors import UNREADABLE
from enricher.worker.records import Partition, Start

log = logging.getLogger(__name__)

DAMAGED = {
    KafkaError._BAD_MSG,  # noqa: SLF001  the client's names
    UNREADABLE,
    KafkaError._NOT_IMPLEMENTED,  # noqa: SLF001  an unknown version of the format, which no whole batch has
}
"""The client's errors for batches that it cannot deliver."""
_MAX_FETCHES = 10
_CERTAIN_FETCHES = 3
_CALM_S = 2.0
"""The time by which the responses that were on their way before the seek have arrived."""
_LASTS_S = 10.0
"""A network card that damages packets is noticed by then; a damaged log stays damaged."""


class State(Enum):
    """The states of a partition; each says what it waits for."""

    SEARCHING = "it is not known yet where it begins"
    UNCOMMITTED = "its start must be committed before anything is read"
    READING = "its records are expected"
    HELD = "nothing more of it is wanted for now"


class Event(Enum):
    """The events of an assigned partition. Records, ends and damage change no state."""

    REWIND = "it goes back to its committed offset"
    FIND = "its start is known, but not committed"
    BEGIN = "its start is known"
    HOLD = "the loop has enough of it, or another one delivers nothing beside it"
    RELEASE = "it is wanted again"


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
    },
    State.HELD: {
        Event.REWIND: State.SEARCHING,
        Event.RELEASE: State.READING,
    },
}
"""The state after each event that a state allows. Any other is an error of this program."""


@dataclass(slots=True)
class Silence:
    """How long a partition has delivered nothing, since `since_s`: a record, its end reached, or the start of reading.

    A client can lose a partition: it stays assigned, the group is stable, but no record arrives (librdkafka 5586, 5591,
    2190) and no error is reported. The only proof comes from the broker: the partition's end is beyond what was delivered,
    and stays beyond it although the client has had every opportunity to deliver. Then the process ends: a restart has a new
    client.

    After the first half of the bound a silent partition's end is requested; one that is behind its end has the second half
    to deliver a record. After that it is overdue, which proves nothing yet. Beside a backlog a healthy partition may be
    silent for long: its records stand in the client's queue behind those of others, or the client does not fetch it (seen:
    with large batches it fetched one of four partitions for half a minute, and the others not at all). So `Assignment` has
    overdue partitions read alone for a moment before it ends the process.
    """

    since_s: float
    behind_s: float | None = None
    """When the broker first reported that there is more to read, or that the log is another one."""

    def hear(self, now_s: float) -> None:
        """Note that a record arrived, or that the partition's end was reached."""
        self.since_s, self.behind_s = now_s, None

    def asks(self, now_s: float, bound_s: float) -> bool:
        """Whether the silence has lasted long enough to request the partition's end."""
        return now_s - self.since_s >= bound_s / 2

    def learn(self, end: int | None, position: int | None, now_s: float) -> None:
        """Note the broker's answer: the partition's end; None if it has no leader now, so that no record can come.

        An end before our position belongs to another log: the topic was recreated or truncated, and the client must notice.
        """
        if end is None:
            self.behind_s = None
        elif end == position:
            self.hear(now_s)
        elif self.behind_s is None:
            self.behind_s = now_s

    def is_overdue(self, now_s: float, bound_s: float) -> bool:
        """Whether the partition is behind its end and delivered nothing within the bound."""
        return self.behind_s is not None and now_s - self.behind_s >= bound_s / 2


@dataclass(slots=True)
class _Stray:
    """The offset at which a partition continued instead of the one expected."""

    offset: int
    expected: int
    first_s: float
    times: int = 0


@dataclass(slots=True)
class Damage:
    """How often the batch at one partition's position was damaged.

    On the network a second fetch helps, in the broker's log none does; the client itself would fetch it for ever (seen:
    1,200 times a second). Batches that are intact but cannot be decompressed are counted here as well.
    """

    offset: int | None = None
    """The offset at which the damaged batch begins; None while nothing was damaged since the last record."""
    first_s: float = 0.0
    fetches: int = 0
    unreadable: str = ""
    """The client's error, once it is certain that it cannot decompress the batch."""
    _stray: _Stray | None = None

    def is_seen(self, error: KafkaError | None, partition: Partition, at: int, expected: int, now_s: float) -> bool:
        """True if the batch at `expected`, the partition's position, has to be fetched again because it is or was damaged.

        `error` and `at` are the message's error and offset. Raises BrokerError if the batch was damaged too often for too
        long.
        """
        if error is None or error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001
            return self._is_stray(at, expected, now_s)
        # Not `at`, which the client may have read from the damaged batch.
        return error.code() in DAMAGED and self._note(error, partition, expected, now_s)

    def clear(self) -> None:
        """Forget the damage: the partition delivered a record."""
        self.offset, self._stray, self.unreadable = None, None, ""

    def _note(self, error: KafkaError, partition: Partition, offset: int, now_s: float) -> bool:
        self._stray = None
        if self.offset != offset:
            self.offset, self.first_s, self.fetches, self.unreadable = offset, now_s, 0, ""
        self.fetches += 1
        if self.fetches < _MAX_FETCHES:
            return True
        if error.code() == UNREADABLE:
            self.unreadable = error.str()
        elif now_s - self.first_s >= _LASTS_S:
            message = (
                f"the batch at offset {offset} of {partition.topic}[{partition.number}] was damaged in {self.fetches} "
                f"fetches within {now_s - self.first_s:.0f} s: {error.str()}. Make an intact replica the leader. If there "
                "is none, set the group's offset behind the batch (kafka-consumer-groups --reset-offsets): its records "
                "are lost"
            )
            raise BrokerError(message)
        return True

    def _is_stray(self, offset: int, expected: int, now_s: float) -> bool:
        """Whether a partition with a damaged batch at `expected` continues at another offset, and it is not certain why.

        The client may have read a wrong next offset from the damaged batch (seen: out of range, back at the beginning, and
        again after a seek). The log may also have a gap there, or have been recreated: then several fetches find the same
        offset, without damage between them.
        """
        if self.offset is None or offset == expected:
            return False
        if self._stray is None or (self._stray.offset, self._stray.expected) != (offset, expected):
            self._stray = _Stray(offset, expected, now_s)
        self._stray.times += 1
        return self._stray.times < _CERTAIN_FETCHES or now_s - self._stray.first_s < _CALM_S


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
    """When a look-up last made progress, while the start is unknown."""
    state: State = State.SEARCHING
    start: Start | None = None
    """The start of reading; None while it is unknown or not committed. Records that come before that are dropped."""
    beginning: int | None = None
    """The offset that was determined as the start, until it is found committed. A rewind does not change it."""
    next: int | None = None
    """The offset after the last delivered record; None while nothing was delivered."""
    end: int | None = None
    """The partition's end, if it was reached and nothing came since."""
    held_end: int | None = None
    """The end of the log while HELD, once it is known."""
    silence: Silence | None = None
    """How long nothing was delivered; None while no records are expected."""
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
    def uncommitted(self) -> int | None:
        """The offset to begin at, while UNCOMMITTED."""
        return self.beginning if self.state is State.UNCOMMITTED else None

    @property
    def to_commit(self) -> int | None:
        """The end, if the partition was read to it, or the start that is not committed yet."""
        return self.uncommitted if self.end is None else self.end

    # ---- events that change the state

    def rewind(self, now_s: float) -> None:
        """Forget the position: `begin` says where reading goes on."""
        self._become(Event.REWIND)
        self.start = self.next = self.end = self.held_end = self.silence = None
        self._epochs = []
        self.unknown_since_s = now_s if self.unknown_since_s is None else self.unknown_since_s
        self.progress_s = now_s

    def find(self, offset: int, now_s: float) -> None:
        """Note that the partition begins at this offset, once it is committed."""
        found_again = self.state is State.UNCOMMITTED and self.beginning == offset
        self._become(Event.FIND)
        if not found_again:
            self.beginning, self.progress_s = offset, now_s

    def begin(self, start: Start, leader_epoch: int | None = None) -> None:
        """Deliver records from `start` on. `leader_epoch`: that of the record before, if known."""
        self._become(Event.BEGIN)
        self.start, self.beginning, self.unknown_since_s = start, None, None
        self._epochs = [] if leader_epoch is None else [(start.offset, leader_epoch)]

    def hold(self) -> None:
        """Deliver nothing until `release`."""
        self._become(Event.HOLD)
        self.silence = self.held_end = None

    def release(self) -> None:
        """Go on at the position."""
        self._become(Event.RELEASE)
        self.held_end = None

    # ---- what the client delivers

    def deliver(self, offset: int, leader_epoch: int | None, now_s: float) -> bool:
        """Note a record. False if it must be dropped, because the start is unknown.

        Raises TransactionTrouble if offsets go back, because then nothing in flight belongs to this log any more.
        """
        if self.start is None:
            return False
        self._check(offset, self.start.offset)
        self.next, self.end = offset + 1, None
        if leader_epoch is not None and leader_epoch >= 0 and (not self._epochs or self._epochs[-1][1] != leader_epoch):
            self._epochs.append((offset + 1, leader_epoch))
        if self.silence:
            self.silence.hear(now_s)
        if self.damage.offset is not None:
            self.damage.clear()
        return True

    def reach_end(self, end: int, now_s: float) -> bool:
        """Note that the partition's end was reached. Returns and raises as `deliver` does."""
        if self.start is None:
            return False
        self._check(end, self.start.offset)
        self.next = self.end = end
        if self.silence:
            self.silence.hear(now_s)
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
