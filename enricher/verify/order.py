"""Do outputs keep the order of the inputs? By partition where that is enough, else by key. Pure, in bounded memory."""

from __future__ import annotations

from array import array
from typing import Protocol

DEFAULT_SLOTS = 2**21
"""Of 16 bytes each."""


class Order(Protocol):
    """Hears of outputs in the order of their log."""

    def keeps(self, place: tuple[str, int], source: tuple[int, int], key: bytes | None) -> bool:
        """False where an output from a later input of the same kind stands before it in the same partition.

        `place`: topic and partition of the output; `source`: partition and offset of its input.
        """
        ...


class ByPartition:
    """For equal partition counts: all outputs of one input partition are in order, and so are those of each key."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, int, int], int] = {}

    def keeps(self, place: tuple[str, int], source: tuple[int, int], key: bytes | None) -> bool:  # noqa: ARG002  as `Order` has it
        """As `Order` says, of the same input partition."""
        partition, offset = source
        last = self._last.get((*place, partition), -1)
        if offset > last:
            self._last[(*place, partition)] = offset
        return offset >= last


class ByKey:
    """For unequal partition counts: the outputs of each key are in order; those without a key have none to keep.

    A table of fixed size, by hash. Where two keys want the same slot the newer one takes it, and the order of the older
    one is forgotten (`forgotten` counts): a violation can be missed for it, and none is invented.
    """

    def __init__(self, slots: int = DEFAULT_SLOTS) -> None:
        self.forgotten = 0
        self._slots = slots
        self._names = array("q", [0]) * slots
        self._last = array("q", [-1]) * slots

    def keeps(self, place: tuple[str, int], source: tuple[int, int], key: bytes | None) -> bool:
        """As `Order` says, of the same key and input partition."""
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
