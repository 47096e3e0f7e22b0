"""The inputs that were published to the input topic and to deleted topics of the same name, in a few bytes per input.

A run of half an hour has some hundred thousand inputs; only digests of each key and expected value are kept.
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

    from tools.reading import InputId

_KINDS: tuple[Kind, ...] = get_args(Kind)
_MOST_TIMES = 255
LARGE_BYTES = 100_000
"""Only dead letters of at least this size may omit their value: every topic of the fault matrix accepts smaller ones."""
_ASK_S = 30.0


def digest(part: bytes | str | None) -> int:
    """A 64-bit digest of a key or a value; 0 for None."""
    if part is None:
        return 0
    data = part.encode() if isinstance(part, str) else part
    return int.from_bytes(blake2b(data, digest_size=8).digest()) or 1


def topic_id_of(bootstrap_servers: str, topic: str) -> str:
    """The id of the topic that has this name now, in the text form that the worker writes into headers."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    description = admin.describe_topics(TopicCollection([topic]), request_timeout=_ASK_S)[topic].result(_ASK_S)
    # Kafka's tools print URL-safe base64, and so does the worker.
    return str(description.topic_id).replace("+", "-").replace("/", "_")


@dataclass(frozen=True, slots=True)
class Wanted:
    """The expected output of an input: how it ends, and the digests of its key and value.

    `omissible_bytes`: the value's size if its dead letter may omit it, otherwise None.
    """

    kind: Kind
    key: int
    value: int
    omissible_bytes: int | None


class _Column:
    """The inputs of one partition, by offset. Offsets without an input (markers, aborted records) have kind 0."""

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

    `committed`: for a deleted topic, the offsets that the group had committed by then, by partition. Inputs below them must
    have an output; the rest may have been deleted before any worker read them. None for the present topic.
    """

    def __init__(self, topic_id: str) -> None:
        self.topic_id = topic_id
        self.committed: Mapping[int, int] | None = None
        self.count = 0
        self._columns: dict[int, _Column] = {}

    def add(self, messages: Iterable[Message]) -> None:
        """Add inputs; each partition's must come in offset order."""
        for message in messages:
            column = self._columns.setdefault(message.partition() or 0, _Column())
            column.add(message.offset() or 0, message.key(), message.value())
            self.count += 1

    @property
    def nexts(self) -> dict[int, int]:
        """The offset after the last input, by partition."""
        return {number: len(column.kinds) for number, column in self._columns.items()}

    def begin(self) -> None:
        """Reset: no input has an output or was seen."""
        for column in self._columns.values():
            column.begin()

    def wanted(self, input_id: InputId) -> Wanted | None:
        """The expected output of this input; None if there is no such input."""
        column = self._columns.get(input_id.partition)
        if column is None or not column.has(input_id.offset):
            return None
        at = input_id.offset
        return Wanted(_KINDS[column.kinds[at] - 1], column.keys[at], column.values[at], column.large.get(at))

    def answer(self, input_id: InputId) -> None:
        """Count one more output of this input."""
        answers = self._columns[input_id.partition].answers
        answers[input_id.offset] = min(answers[input_id.offset] + 1, _MOST_TIMES)

    def see(self, input_id: InputId, times: int) -> None:
        """Record how often a reader saw outputs of this input while the workers ran."""
        self._columns[input_id.partition].seen[input_id.offset] = min(times, _MOST_TIMES)

    def answers_to(self, input_id: InputId) -> int:
        return self._columns[input_id.partition].answers[input_id.offset]

    def ends(self) -> Iterator[tuple[int, int, int, int]]:
        """Yield partition, offset, number of outputs, and how often outputs were seen during the run, for each input."""
        for partition, column in self._columns.items():
            for offset, kind in enumerate(column.kinds):
                if kind:
                    yield partition, offset, column.answers[offset], column.seen[offset]

    def needs_answer(self, partition: int, offset: int) -> bool:
        """Whether the input counts as lost if it has no output."""
        return self.committed is None or offset < self.committed.get(partition, 0)


class Ledger:
    """All incarnations, oldest first. Outputs without a topic id are attributable only if there is exactly one."""

    def __init__(self, incarnations: Sequence[Incarnation]) -> None:
        self._incarnations = incarnations
        self._numbers = {each.topic_id: number for number, each in enumerate(incarnations)}
        for each in incarnations:
            each.begin()

    def __iter__(self) -> Iterator[Incarnation]:
        return iter(self._incarnations)

    def number_of(self, input_id: InputId) -> int | None:
        """Index of the incarnation an input belongs to; None if it is ambiguous or the topic id is unknown."""
        if input_id.topic_id is None:
            return 0 if len(self._incarnations) == 1 else None
        return self._numbers.get(input_id.topic_id)

    def __getitem__(self, number: int) -> Incarnation:
        return self._incarnations[number]
