"""Which dead letters are settled, because they were redriven, or are superseded by a newer record of their key.

Those below the committed offset of their partition are (`Progress`). The first one that is left, because it was not
selected for example, keeps the offset where it is, so that a later run finds it. Those behind it that were sent are found
again as well: their record in the input names the letter (`NewerRecords`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b

from confluent_kafka import TopicPartition

from enricher.errors import FatalError
from enricher.operate.dead_letters.letters import REDRIVEN_LETTER, Letter
from enricher.operate.inspect.inspector import Inspector
from enricher.worker.kafka.metadata import headers_of
from enricher.worker.kafka.ranges import RangeReader
from enricher.worker.rules.commit_metadata import CommitMetadata
from enricher.worker.runtime.deadlines import Deadline

_EARLIER_FORM = "stretches="


_UNREADABLE = (
    "an earlier version of the redrive has left letters of {place} between others that it sent, and noted that in a form "
    "which this version does not read. Let that version send what is left, or delete the offsets of the redrive's group "
    "(kafka-consumer-groups --delete-offsets): then letters without a key that it sent are sent once more, and give --since"
)
_AWAY_S = 60.0
"""Once it has begun, a redrive waits so long for a broker that is away, as readers and the sender do."""


def committed_starts(committed: Iterable[TopicPartition], topic_id: str | None) -> dict[int, int]:
    """The offsets that the redrive's group has committed for this very topic, by partition.

    Raises FatalError for one of an earlier version that left letters between others that it sent.
    """
    starts = {}
    for tp in committed:
        if _EARLIER_FORM in (tp.metadata or ""):
            raise FatalError(_UNREADABLE.format(place=f"{tp.topic}[{tp.partition}]"))
        if tp.offset >= 0 and CommitMetadata.decode(tp.metadata).is_of(topic_id):
            starts[tp.partition] = tp.offset
    return starts


class Progress:
    """How far a run has come in each partition. `starts`: where it begins there."""

    def __init__(self, starts: Mapping[int, int]) -> None:
        self._next = dict(starts)
        self._first_left: dict[int, int] = {}

    def leave(self, letter: Letter) -> None:
        """Note a letter that stays unsettled."""
        self._first_left[letter.number] = min(letter.offset, self._first_left.get(letter.number, letter.offset))

    def pass_by(self, number: int, offset: int) -> None:
        """Note that everything before the offset was sent, superseded, left, or is about to be committed."""
        self._next[number] = offset

    def offsets(self, waiting: Iterable[Letter] = ()) -> dict[int, int]:
        """The offset of each partition below which all is settled. `waiting`: passed by, and sent only later."""
        left = dict(self._first_left)
        for letter in waiting:
            left[letter.number] = min(letter.offset, left.get(letter.number, letter.offset))
        return {number: min(at, left.get(number, at)) for number, at in self._next.items()}


_Key = tuple[int, bytes]


class NewerRecords:
    """Knows the newest record of each key in question. Keys are compared inside a partition of the input `topic`.

    The input is read once, from the lowest source offset on, and then as it grows. Only the letters in question are kept:
    their names, and their keys as digests, each with the offset of its newest record.
    """

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
