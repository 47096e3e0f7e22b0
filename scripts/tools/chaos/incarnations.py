"""What was published in the input topic, and in those of the same name that were deleted: a few bytes for each input.

A run of half an hour has some hundred thousand inputs; of each only digests of its key and of its right answer are kept.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, get_args

from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient

from tools.chaos.reference import Kind, expected

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from confluent_kafka import Message

    from tools.chaos.headers import Place

_KINDS: tuple[Kind, ...] = get_args(Kind)
_MOST_TIMES = 255
LARGE_BYTES = 100_000
"""A dead letter may leave out its value only from this size on: no topic of the fault matrix refuses a smaller message."""
_ASK_S = 30.0


def digest(part: bytes | str | None) -> int:
    """Of a key or a value, in 64 bits; 0 where there is none."""
    if part is None:
        return 0
    data = part.encode() if isinstance(part, str) else part
    return int.from_bytes(blake2b(data, digest_size=8).digest()) or 1


def topic_id_of(bootstrap_servers: str, topic: str) -> str:
    """The id of the topic that has this name now, as the worker writes it into headers."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    description = admin.describe_topics(TopicCollection([topic]), request_timeout=_ASK_S)[topic].result(_ASK_S)
    # As Kafka's own tools print it, and the worker writes it.
    return str(description.topic_id).replace("+", "-").replace("/", "_")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What must come out for an input: how it ends, and the digests of key and value.

    `omissible_bytes`: the size of a value that its dead letter may leave out; None where it may not.
    """

    kind: Kind
    key: int
    value: int
    omissible_bytes: int | None


class _Column:
    """One partition, by offset. What is no input (a marker, an aborted record) has kind 0."""

    def __init__(self) -> None:
        self.kinds = bytearray()
        self.keys, self.values = array("Q"), array("Q")
        self.large: dict[int, int] = {}
        self.answers, self.seen = bytearray(), bytearray()

    def add(self, offset: int, key: bytes | str | None, value: bytes | None) -> None:
        gap = offset - len(self.kinds)
        assert gap >= 0, "offsets ascend"
        wanted = expected(value)
        self.kinds += bytes([*bytes(gap), 1 + _KINDS.index(wanted.kind)])
        self.keys.extend([*[0] * gap, digest(key)])
        self.values.extend([*[0] * gap, digest(wanted.value)])
        if value is not None and len(value) >= LARGE_BYTES:
            self.large[offset] = len(value)

    def has(self, offset: int) -> bool:
        return 0 <= offset < len(self.kinds) and self.kinds[offset] > 0

    def begin(self) -> None:
        self.answers, self.seen = bytearray(len(self.kinds)), bytearray(len(self.kinds))


class Incarnation:
    """The inputs of one topic.

    `committed`: of a topic that was deleted, an offset for each partition that the group had committed by then. What
    stood below must have an answer; the rest may have been deleted before any worker saw it. None for the topic of today.
    """

    def __init__(self, topic_id: str) -> None:
        self.topic_id = topic_id
        self.committed: Mapping[int, int] | None = None
        self.count = 0
        self._columns: dict[int, _Column] = {}

    def add(self, messages: Iterable[Message]) -> None:
        """Take inputs, each partition in order."""
        for message in messages:
            column = self._columns.setdefault(message.partition() or 0, _Column())
            column.add(message.offset() or 0, message.key(), message.value())
            self.count += 1

    @property
    def nexts(self) -> dict[int, int]:
        """For each partition the offset behind its last input."""
        return {number: len(column.kinds) for number, column in self._columns.items()}

    def begin(self) -> None:
        """No input has an answer, and none was seen."""
        for column in self._columns.values():
            column.begin()

    def wanted(self, place: Place) -> Wanted | None:
        """What must come out for the input there; None where there was none."""
        column = self._columns.get(place.partition)
        if column is None or not column.has(place.offset):
            return None
        at = place.offset
        return Wanted(_KINDS[column.kinds[at] - 1], column.keys[at], column.values[at], column.large.get(at))

    def answer(self, place: Place) -> None:
        """One more output for the input there."""
        _count(self._columns[place.partition].answers, place.offset)

    def see(self, place: Place, times: int) -> None:
        """A reader saw an output of it while the workers ran, so often."""
        self._columns[place.partition].seen[place.offset] = min(times, _MOST_TIMES)

    def answers_to(self, place: Place) -> int:
        """How many outputs the input there has."""
        return self._columns[place.partition].answers[place.offset]

    def ends(self) -> Iterator[tuple[int, int, int, int]]:
        """Of each input: partition, offset, how many outputs it has, how many of them were seen while the workers ran."""
        for partition, column in self._columns.items():
            for offset, kind in enumerate(column.kinds):
                if kind:
                    yield partition, offset, column.answers[offset], column.seen[offset]

    def needs_answer(self, partition: int, offset: int) -> bool:
        """Whether the input there is lost where it has none."""
        return self.committed is None or offset < self.committed.get(partition, 0)


class Ledger:
    """All incarnations, the oldest first. Outputs without a topic id can be told only where there is one incarnation."""

    def __init__(self, incarnations: Sequence[Incarnation]) -> None:
        self._incarnations = incarnations
        self._numbers = {each.topic_id: number for number, each in enumerate(incarnations)}
        for each in incarnations:
            each.begin()

    def __iter__(self) -> Iterator[Incarnation]:
        return iter(self._incarnations)

    def number_of(self, place: Place) -> int | None:
        """Which incarnation a place is of; None where that cannot be told, or there is none of this id."""
        if place.topic_id is None:
            return 0 if len(self._incarnations) == 1 else None
        return self._numbers.get(place.topic_id)

    def __getitem__(self, number: int) -> Incarnation:
        return self._incarnations[number]


def _count(column: bytearray, offset: int) -> None:
    column[offset] = min(column[offset] + 1, _MOST_TIMES)
