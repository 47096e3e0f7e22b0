"""Checks that outputs keep the order of the inputs: by partition if that is enough, else by key. Pure, bounded memory."""

from __future__ import annotations

from array import array

_SLOTS = 2**21  # of 16 bytes each


class ByPartition:
    """Checks topics of equal partition counts: the outputs of one input partition are in order, and so of each key."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, int, int], int] = {}

    def keeps(self, place: tuple[str, int], source: tuple[int, int], key: bytes | None) -> bool:  # noqa: ARG002  `ByKey` has it
        """False if an output of a later input precedes it in the same partition.

        `place`: topic and partition of the output; `source`: partition and offset of its input.
        """
        partition, offset = source
        last = self._last.get((*place, partition), -1)
        if offset > last:
            self._last[(*place, partition)] = offset
        return offset >= last


class ByKey:
    """Checks topics of unequal partition counts: the outputs of each key are in order, those without one in none.

    A hash table of fixed size. If two keys fall into one slot, the newer one replaces the older, whose order is forgotten
    (`forgotten` counts): a violation can be missed, but none is invented.
    """

    def __init__(self, slots: int = _SLOTS) -> None:
        self.forgotten = 0
        self._slots = slots
        self._names = array("q", [0]) * slots
        self._last = array("q", [-1]) * slots

    def keeps(self, place: tuple[str, int], source: tuple[int, int], key: bytes | None) -> bool:
        """Like `ByPartition.keeps`, among the outputs of one key."""
        if key is None:
            return True
        partition, offset = source
        name = hash((place, partition, key))
        slot = name % self._slots
        last = self._last[slot]
        if self._names[slot] != name:
            self.forgotten += last >= 0
            self._names[slot], self._last[slot] = name, offset
            return True
        self._last[slot] = max(last, offset)
        return offset >= last
