"""Whether a newer record of the same key is in the input: then a dead letter is superseded, and must not come back.

The input is read once, from the lowest source offset on, and then as it grows. Only the keys in question are kept, as
digests, each with the offset of its newest record.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b

from enricher.worker.kafka.reading.ranges import RangeReader
from enricher.worker.runtime.deadlines import Deadline

_Key = tuple[int, bytes]


class NewerRecords:
    """Knows the newest record of each key in question. Keys are compared inside a partition of the input `topic`."""

    def __init__(self, reader: RangeReader, topic: str) -> None:
        self._reader = reader
        self._topic = topic
        self._newest: dict[_Key, int] = {}
        self._positions: dict[int, int] = {}
        self.starts: dict[int, int] = {}
        """The offset of each partition from which on its records have to be known."""

    def ask_about(self, number: int, key: bytes | None, offset: int) -> None:
        """From now on notice newer records than the one at `offset` of the input; one without a key has none."""
        if key is not None:
            name = number, _digest(key)
            self._newest[name] = max(offset, self._newest.get(name, offset))
            self.starts[number] = min(offset + 1, self.starts.get(number, offset + 1))

    def note(self, number: int, key: bytes | None, offset: int) -> None:
        """Note that the input has, or had, a record of this key at `offset`."""
        if key is not None and self._newest.get(name := (number, _digest(key)), offset) < offset:
            self._newest[name] = offset

    def has_newer(self, number: int, key: bytes | None, offset: int) -> bool:
        """Whether a newer record than the one at `offset` is known. `ask_about` it first."""
        return key is not None and self._newest[number, _digest(key)] > offset

    def read_to(self, ends: Mapping[int, int], deadline: Deadline | None = None) -> bool:
        """Read partitions on to `ends`; False if the deadline came first. Raises BrokerError.

        A batch that the client cannot unpack is passed over: no article will come of it.
        """
        ranges = {
            number: (self._positions.get(number, self.starts[number]), end)
            for number, end in ends.items()
            if number in self.starts
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
        self.starts.clear()


def _digest(key: bytes) -> bytes:
    """16 bytes for a key of any length: two keys never share one by chance."""
    return blake2b(key, digest_size=16).digest()
