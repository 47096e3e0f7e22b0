"""Whether a newer record of the same key is in the input: then a dead letter is superseded, and must not come back.

The input is read once, from the lowest source offset on, and then as it grows. Only the keys in question are kept, as
digests, each with the offset of its newest record.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b

from enricher.operate.inspect.inspector import Inspector
from enricher.worker.kafka.reading.ranges import RangeReader
from enricher.worker.runtime.deadlines import Deadline

_Key = tuple[int, bytes]

_AWAY_S = 60.0
"""Once it has begun, a redrive waits so long for a broker that is away, as readers and the sender do."""


class NewerRecords:
    """Knows the newest record of each key in question. Keys are compared inside a partition of the input `topic`."""

    def __init__(self, reader: RangeReader, inspector: Inspector, topic: str) -> None:
        self._reader = reader
        self._inspector = inspector
        self._topic = topic
        self._newest: dict[_Key, int] = {}
        self._positions: dict[int, int] = {}
        self._starts: dict[int, int] = {}
        """The offset of each partition from which on its records have to be known."""
        self._lows: Mapping[int, int] = {}

    def ask_about(self, number: int, key: bytes | None, offset: int) -> None:
        """From now on notice newer records than the one at `offset` of the input; one without a key has none."""
        if key is not None:
            name = number, _digest(key)
            self._newest[name] = max(offset, self._newest.get(name, offset))
            self._starts[number] = min(offset + 1, self._starts.get(number, offset + 1))

    def note(self, number: int, key: bytes | None, offset: int) -> None:
        """Note that the input has, or had, a record of this key at `offset`."""
        if key is not None and self._newest.get(name := (number, _digest(key)), offset) < offset:
            self._newest[name] = offset

    def has_newer(self, number: int, key: bytes | None, offset: int) -> bool:
        """Whether a newer record than the one at `offset` is known. `ask_about` it first."""
        return key is not None and self._newest[number, _digest(key)] > offset

    def may_have_lost(self, number: int, key: bytes | None, offset: int) -> bool:
        """Whether records behind the one at `offset` were gone at `read_all`: one of them may have been newer."""
        return key is not None and offset + 1 < self._lows[number]

    def read_all(self) -> None:
        """Read all partitions to their present end, as far as newer records matter there. Raises BrokerError."""
        self.read_on(self._starts)
        # Asked behind the reading, which retention may have overtaken.
        with self._inspector.within(_AWAY_S):
            self._lows = self._inspector.beginnings(self._topic)

    def read_on(self, numbers: Iterable[int]) -> None:
        """Read some partitions, as `read_all` does."""
        wanted = sorted(self._starts.keys() & set(numbers))
        if wanted:
            with self._inspector.within(_AWAY_S):
                ends = self._inspector.ends(self._topic, wanted, committed_only=True)
            self.read_to(ends)

    def read_to(self, ends: Mapping[int, int], deadline: Deadline | None = None) -> bool:
        """Read partitions on to `ends`; False if the deadline came first. Raises BrokerError.

        A batch that the client cannot unpack is passed over: no article will come of it.
        """
        ranges = {
            number: (self._positions.get(number, self._starts[number]), end)
            for number, end in ends.items()
            if number in self._starts
        }
        doing = f"looking for newer records in '{self._topic}'"
        for message in self._reader.read(self._topic, ranges, doing, lambda *_: None, deadline=deadline):
            self.note(message.partition() or 0, message.key(), message.offset() or 0)
        self._positions |= {
            number: max(start, end) for number, (start, end) in ranges.items() if number not in self._reader.left
        }
        return not self._reader.left

    def forget(self) -> None:
        """Begin with other keys."""
        self._newest.clear()
        self._positions.clear()
        self._starts.clear()


def _digest(key: bytes) -> bytes:
    """16 bytes for a key of any length: two keys never share one by chance."""
    return blake2b(key, digest_size=16).digest()
