"""Notes what was seen of each input offset: one byte of state and a hash of two bytes, so 100 million inputs take 300 MB.

Pure. Outputs are noted first, inputs after them. Then an offset with only one of both is a lost input or an invented output.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from zlib import crc32

import numpy as np
import numpy.typing as npt

from enricher.operate.verify.deletions import NO_DELETION, Deletion
from enricher.operate.verify.headers import Omitted

_COPIES, _TOMBSTONE, _DEAD, _INPUT = 0b11, 0b100, 0b1000, 0b1_0000
_WITHOUT_VALUE, _WITHOUT_KEY, _UNREADABLE = 0b10_0000, 0b100_0000, 0b1000_0000
_SHORTENED = _WITHOUT_VALUE | _WITHOUT_KEY | _UNREADABLE

Offsets = npt.NDArray[np.int64]


def mark_of(key: bytes | None, value: bytes | None = None) -> int:
    """A 16-bit hash of key and value: a difference goes unnoticed once in 65,536 times."""
    mark = 1 if key is None else crc32(key, 2)
    return (mark if value is None else crc32(value, mark ^ 0xFFFF)) & 0xFFFF


def _size_mark(size_bytes: int) -> bytes:
    """Stands for a key or a value of which only the size is known."""
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

    def note_unread(self, offset: int) -> Differences | None:
        """Note an input that cannot be read; None if it has no output. Its dead letter must say that it is shortened."""
        index = offset - self.low
        state = self._states[index] = self._states[index] | _INPUT
        if not state & _COPIES:
            return None
        # A client with larger limits may have read it: then there is nothing to compare with.
        return Differences(bool(state & _DEAD), tombstone=False, content=bool(state & _DEAD) and not state & _SHORTENED)

    def without_output(self, before: int) -> Offsets:
        """Inputs below `before` that have no output."""
        states = self._until(before)
        return np.flatnonzero((states & _INPUT != 0) & (states & _COPIES == 0)) + self.low

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
