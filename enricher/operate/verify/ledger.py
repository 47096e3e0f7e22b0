"""Notes what was seen of each input offset, and what follows for the promise. No I/O, and never the text of an article.

A ledger takes one byte of state and a hash of two bytes for each offset, so 100 million inputs take 300 MB. Outputs are
noted first, inputs after them (`Inputs`). Then an offset with only an input or only an output is a lost input or an invented
output (`Judge`). There is one check for each part of the promise: it fails if something is certainly wrong, and is unknown
if the log can no longer tell.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Self
from zlib import crc32

import numpy as np
import numpy.typing as npt
from confluent_kafka import Message

from enricher.operate.verify.contract import NO_DELETION, DeleteEvents, Deletion, Omitted

State = Literal["ok", "failed", "unknown"]

MAX_EXAMPLES = 10

EARLIER = "outputs of an earlier topic of this name"
"""The name of a fact: how many outputs name another topic id. Their inputs were deleted with that topic, so they prove
nothing."""


class Place(NamedTuple):
    """The place of a record."""

    topic: str
    partition: int
    offset: int

    @classmethod
    def of(cls, message: Message) -> Self:
        """The place of a message."""
        return cls(message.topic() or "", message.partition() or 0, message.offset() or 0)

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}]@{self.offset}"


@dataclass(slots=True)
class Check:
    """One part of the promise, checked while the log is read. `holds`: what is true if the state is ok."""

    name: str
    holds: str
    checked: int = 0
    failed: int = 0
    examples: list[Place] = field(default_factory=list)
    """The first few violations."""
    doubt: str = ""
    """Why the log can no longer tell; empty if it can."""

    def note(self, place: Place, *, ok: bool) -> None:
        """Count a record as checked, and as a violation unless it is `ok`."""
        self.checked += 1
        if not ok:
            self.fail(place)

    def fail(self, place: Place) -> None:
        """Count a violation."""
        self.failed += 1
        if len(self.examples) < MAX_EXAMPLES:
            self.examples.append(place)

    @property
    def state(self) -> State:
        """The result so far."""
        if self.failed:
            return "failed"
        return "unknown" if self.doubt else "ok"

    def as_json(self) -> dict[str, Any]:
        """The object printed by `--json`."""
        return {
            "check": self.name,
            "state": self.state,
            "holds": self.holds,
            "checked": self.checked,
            "failed": self.failed,
            "examples": [place._asdict() for place in self.examples],
            "doubt": self.doubt,
        }


class Checks:
    """All checks, in display order."""

    def __init__(self) -> None:
        self.lost = Check(
            "lost", "every committed input has an output or a dead letter, unless articles.transform skips it"
        )
        self.doubled = Check("doubled", "no input has two")
        self.invented = Check("invented", "every output belongs to a committed record of the input")
        self.order = Check("order", "outputs keep the order of the inputs, per key")
        self.partition = Check("partition", "outputs are in the partition of their input")
        self.tombstones = Check("tombstones", "a tombstone or delete event becomes a tombstone, and nothing else does")
        self.keys = Check("keys", "an output has the key of its input")
        self.dead_letters = Check("dead letters", "a dead letter has the key and the value of its input")
        self.headers = Check("headers", "the headers conform to the schema")
        self.versions = Check("versions", "a version is that of its input, and of newer inputs it is higher")
        self.record_ids = Check("record ids", "the record id is that of its source")
        self.open_transactions = Check("open transactions", "none is left open: the last stable offset is the end")
        self.published_ahead = Check("published ahead", "nothing is published at or above the committed offset")
        self.committed_ahead = Check("committed ahead", "no committed offset lies beyond the end of the input")
        self.payload = Check("payload", "a recomputation gives the same record")

    def __iter__(self) -> Iterator[Check]:
        return iter(vars(self).values())


@dataclass(frozen=True, slots=True)
class Report:
    """The checks, and what else was counted (`facts`, by name)."""

    checks: tuple[Check, ...]
    facts: Mapping[str, int]

    @property
    def holds(self) -> bool:
        """True if no check failed."""
        return all(check.state != "failed" for check in self.checks)

    @property
    def failed(self) -> list[str]:
        """The names of the checks that failed."""
        return [check.name for check in self.checks if check.state == "failed"]

    def as_json(self) -> dict[str, Any]:
        """The object printed by `--json`."""
        return {"holds": self.holds, "checks": [check.as_json() for check in self.checks], "facts": dict(self.facts)}


_COPIES, _TOMBSTONE, _DEAD, _INPUT = 0b11, 0b100, 0b1000, 0b1_0000
_WITHOUT_VALUE, _WITHOUT_KEY, _UNREADABLE = 0b10_0000, 0b100_0000, 0b1000_0000
_SHORTENED = _WITHOUT_VALUE | _WITHOUT_KEY | _UNREADABLE
_SKIPPED = _TOMBSTONE
"""The bit of an input without an output that is right; otherwise only outputs have it."""

Skips = Callable[[Message], bool]
Offsets = npt.NDArray[np.int64]


def mark_of(key: bytes | None, value: bytes | None = None) -> int:
    """A 16-bit hash of key and value: a difference goes unnoticed once in 65,536 times."""
    mark = 1 if key is None else crc32(key, 2)
    return (mark if value is None else crc32(value, mark ^ 0xFFFF)) & 0xFFFF


def _size_mark(size_bytes: int) -> bytes:
    """A mark for a key or a value of which only the size is known."""
    return b"%d bytes" % size_bytes


@dataclass(frozen=True, slots=True)
class Differences:
    """How an output differs from its input. `dead_letter`: whether the output is one."""

    dead_letter: bool
    tombstone: bool
    content: bool


class PartitionLedger:
    """The offsets [low, end) of one input partition."""

    def __init__(self, low: int, end: int) -> None:
        self.low, self.end = low, max(low, end)
        self._states = bytearray(self.end - low)
        self._marks = array("H", [0]) * (self.end - low)

    def covers(self, offset: int) -> bool:
        """True for an offset of this ledger."""
        return self.low <= offset < self.end

    def note_record(self, offset: int, key: bytes | None, *, tombstone: bool) -> bool:
        """Note a record, or a tombstone, of the input at `offset`; returns whether there was an output before."""
        return self._note_output(offset, mark_of(key), tombstone * _TOMBSTONE)

    def note_dead_letter(self, offset: int, key: bytes | None, value: bytes | None, omitted: Omitted) -> bool:
        """Note a dead letter of the input at `offset`; returns whether there was an output before."""
        kind = _DEAD | omitted.unreadable * _UNREADABLE
        if omitted.key_bytes is not None:
            kind |= _WITHOUT_KEY
            key = _size_mark(omitted.key_bytes) if key is None else key
        if omitted.value_bytes is not None:
            kind |= _WITHOUT_VALUE
            value = _size_mark(omitted.value_bytes) if value is None else value
        return self._note_output(offset, mark_of(key, value), kind)

    def _note_output(self, offset: int, mark: int, kind: int) -> bool:
        index = offset - self.low
        before = self._states[index]
        copies = min(before & _COPIES, 2) + 1
        self._states[index] = copies | kind | before & _INPUT
        self._marks[index] = mark
        return bool(before & _COPIES)

    def note_input(
        self, offset: int, key: bytes | None, value: bytes | None, deletion: Deletion = NO_DELETION
    ) -> Differences | None:
        """Note a committed input; None if it has no output. `deletion`: whether its value is a delete event.

        Of what a dead letter has left out, the declared size is compared.
        """
        index = offset - self.low
        state = self._states[index] = self._states[index] | _INPUT
        if not state & _COPIES:
            return None
        dead, is_tombstone = bool(state & _DEAD), bool(state & _TOMBSTONE)
        deletes = True if value is None else deletion.deletes
        tombstone = not dead and deletes is not None and is_tombstone != deletes
        known = not state & _UNREADABLE
        if dead and state & _WITHOUT_KEY:
            key = _size_mark(len(key or b""))
        elif is_tombstone and value is not None and not key:
            key, known = deletion.key, deletion.key is not None
        if not dead:
            value = None
        elif state & _WITHOUT_VALUE:
            value = _size_mark(len(value or b""))
        # What the worker could not read, a client with larger limits may: then there is nothing to compare.
        content = known and self._marks[index] != mark_of(key, value)
        return Differences(dead, tombstone, content)

    def note_skipped(self, offset: int) -> None:
        """Note that a committed input without an output should have none."""
        self._states[offset - self.low] |= _SKIPPED

    def note_unread(self, offset: int) -> Differences | None:
        """Note an input that cannot be read; None if it has no output. Its dead letter must say that it is shortened."""
        index = offset - self.low
        state = self._states[index] = self._states[index] | _INPUT
        if not state & _COPIES:
            return None
        # A client with larger limits may have read it: then there is nothing to compare with.
        return Differences(bool(state & _DEAD), tombstone=False, content=bool(state & _DEAD) and not state & _SHORTENED)

    def without_output(self, before: int) -> Offsets:
        """Inputs below `before` that have no output, though they should."""
        states = self._until(before)
        return np.flatnonzero(states & (_INPUT | _COPIES | _SKIPPED) == _INPUT) + self.low

    def without_input(self, start: int, before: int) -> Offsets:
        """Offsets in [start, before) that have an output but are no committed input."""
        states = self._until(before)
        found: Offsets = np.flatnonzero((states & _INPUT == 0) & (states & _COPIES != 0)) + self.low
        return found[found >= start]

    def outputs_from(self, start: int) -> Offsets:
        """Offsets from `start` on that have an output."""
        found: Offsets = np.flatnonzero(self._until(self.end) & _COPIES) + self.low
        return found[found >= start]

    def inputs(self, before: int) -> int:
        """How many inputs there are below `before`."""
        return int(np.count_nonzero(self._until(before) & _INPUT))

    def _until(self, before: int) -> npt.NDArray[np.uint8]:
        stop = min(max(before - self.low, 0), len(self._states))
        return np.frombuffer(self._states, np.uint8)[:stop]


class Inputs:
    """Compares the input topic with the outputs in `ledgers`.

    `deletes`: which of its values are delete events; None if none are. `skips`: whether `articles.transform` wants no output
    for a message; asked for inputs that have none. A worker that skips leaves nothing behind, so only its function can tell
    a skipped input from a lost one.
    """

    def __init__(
        self,
        checks: Checks,
        ledgers: Mapping[int, PartitionLedger],
        topic: str,
        deletes: DeleteEvents | None = None,
        skips: Skips | None = None,
    ) -> None:
        self._checks = checks
        self._ledgers = ledgers
        self._topic = topic
        self._deletes = deletes
        self._skips = skips
        self.skipped = 0

    def take(self, message: Message) -> None:
        """Note one committed input."""
        place = Place.of(message)
        ledger = self._ledgers[place.partition]
        if ledger.covers(place.offset):
            key, value = message.key(), message.value()
            deletion = self._deletes.deletion(value) if self._deletes else NO_DELETION
            differences = ledger.note_input(place.offset, key, value, deletion)
            self._compare(differences, place)
            if differences is None and value is not None and self._skips and self._skips(message):
                ledger.note_skipped(place.offset)
                self.skipped += 1

    def take_unread(self, number: int, offsets: range) -> None:
        """Note committed inputs that cannot be read: the only valid output is a dead letter that says so."""
        ledger = self._ledgers[number]
        for offset in offsets:
            if ledger.covers(offset):
                self._compare(ledger.note_unread(offset), Place(self._topic, number, offset))

    def _compare(self, differences: Differences | None, place: Place) -> None:
        if differences is None:
            return
        content = self._checks.dead_letters if differences.dead_letter else self._checks.keys
        content.note(place, ok=not differences.content)
        if not differences.dead_letter:
            self._checks.tombstones.note(place, ok=not differences.tombstone)


@dataclass(frozen=True, slots=True)
class JudgedRange:
    """Which offsets of one input partition can be judged.

    `due`: inputs below it must have an output. `committed`: there must be no output at or above it. `begins`: the first
    offset that retention has left. Outputs of inputs below `outputs_begin` may have been deleted.
    """

    due: int
    committed: int
    begins: int
    outputs_begin: int


@dataclass(frozen=True, slots=True)
class Doubts:
    """The reasons why a missing counterpart proves nothing; empty if it proves something."""

    missing_outputs: str = ""
    missing_inputs: str = ""
    published_ahead: str = ""


class Judge:
    """Judges each partition, into the checks. `excused`: missing outputs that retention may have deleted."""

    def __init__(self, checks: Checks, topic: str, doubts: Doubts) -> None:
        self.excused = 0
        self._checks = checks
        self._topic = topic
        self._doubts = doubts

    def judge(self, number: int, ledger: PartitionLedger, judged: JudgedRange) -> None:
        """Judge one partition, after all of its records were noted."""
        self._judge_lost(number, ledger, judged)
        checks, doubts = self._checks, self._doubts
        invented = ledger.without_input(judged.begins, judged.committed)
        checks.invented.checked = checks.doubled.checked
        _note(checks.invented, self._places(number, invented), doubts.missing_inputs)
        checks.published_ahead.checked = checks.doubled.checked
        ahead = ledger.outputs_from(judged.committed)
        _note(checks.published_ahead, self._places(number, ahead), doubts.published_ahead)

    def _judge_lost(self, number: int, ledger: PartitionLedger, judged: JudgedRange) -> None:
        lost = self._checks.lost
        lost.checked += ledger.inputs(judged.due)
        missing = ledger.without_output(judged.due)
        excusable = missing < judged.outputs_begin
        self.excused += int(excusable.sum())
        if excusable.any():
            lost.doubt = lost.doubt or "retention has deleted the oldest outputs"
        _note(lost, self._places(number, missing[~excusable]), self._doubts.missing_outputs)

    def _places(self, number: int, offsets: Offsets) -> list[Place]:
        return [Place(self._topic, number, int(offset)) for offset in offsets]


def _note(check: Check, places: list[Place], doubt: str) -> None:
    """Note violations; if there is a `doubt` about missing records, note only the doubt."""
    if places and doubt:
        check.doubt = doubt
        return
    for place in places:
        check.fail(place)
