"""Whether a dead letter must not come back, because the input has a newer record of its key, or the letter's own record.

The input is read once, from the lowest source offset on, and then as it grows. Only the letters in question are kept: their
names, and their keys as digests, each with the offset of its newest record.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b

from enricher.operate.dead_letters.letters import REDRIVEN_LETTER
from enricher.operate.inspect.inspector import Inspector
from enricher.worker.kafka.reading.ranges import RangeReader
from enricher.worker.kafka.shared.metadata import headers_of
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
        self._sent: dict[bytes, bool] = {}
        """The letters in question by name, and whether their record is in the input."""
        self._positions: dict[int, int] = {}
        self._lows: Mapping[int, int] = {}

    def ask_about(self, name: bytes, number: int, key: bytes | None, offset: int) -> None:
        """From now on notice newer records than the one at `offset` of the input, and the record of the letter `name`."""
        if key is not None:
            digest = number, _digest(key)
            self._newest[digest] = max(offset, self._newest.get(digest, offset))
        self._sent[name] = False
        self._positions[number] = min(offset + 1, self._positions.get(number, offset + 1))

    def note(self, number: int, key: bytes | None, offset: int) -> None:
        """Note that the input has, or had, a record of this key at `offset`."""
        if key is not None and self._newest.get(digest := (number, _digest(key)), offset) < offset:
            self._newest[digest] = offset

    def has_newer(self, number: int, key: bytes | None, offset: int) -> bool:
        """Whether a newer record than the one at `offset` is known. `ask_about` it first."""
        return key is not None and self._newest[number, _digest(key)] > offset

    def has_letter(self, name: bytes) -> bool:
        """Whether the record of the letter is known. `ask_about` it first."""
        return self._sent[name]

    def may_have_lost(self, number: int, offset: int) -> bool:
        """Whether records behind the one at `offset` were gone at `read_all`."""
        return offset + 1 < self._lows[number]

    def read_all(self) -> None:
        """Read all partitions to their present end, as far as newer records matter there. Raises BrokerError."""
        if self._positions:
            with self._inspector.within(_AWAY_S):
                ends = self._inspector.ends(self._topic, sorted(self._positions), committed_only=True)
            self.read_to(ends)
        # Asked behind the reading, which retention may have overtaken.
        with self._inspector.within(_AWAY_S):
            self._lows = self._inspector.beginnings(self._topic)

    def read_to(self, ends: Mapping[int, int], deadline: Deadline | None = None) -> bool:
        """Read partitions on to `ends`; False if the deadline came first. Raises BrokerError.

        A batch that the client cannot unpack is passed over: no article will come of it.
        """
        ranges = {number: (self._positions[number], end) for number, end in ends.items()}
        doing = f"looking for newer records in '{self._topic}'"
        for message in self._reader.read(self._topic, ranges, doing, lambda *_: None, deadline=deadline):
            self.note(message.partition() or 0, message.key(), message.offset() or 0)
            for name, value in headers_of(message):
                if name == REDRIVEN_LETTER and value in self._sent:
                    self._sent[value] = True
        self._positions |= {
            number: max(start, end) for number, (start, end) in ranges.items() if number not in self._reader.left
        }
        return not self._reader.left


def _digest(key: bytes) -> bytes:
    """16 bytes for a key of any length: two keys never share one by chance."""
    return blake2b(key, digest_size=16).digest()
