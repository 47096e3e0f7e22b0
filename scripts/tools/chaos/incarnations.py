"""The inputs that were published to the input topic and to deleted topics of the same name.

A run of half an hour has some hundred thousand inputs; only digests of each key and expected value are kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import NamedTuple

from confluent_kafka import Message, TopicCollection
from confluent_kafka.admin import AdminClient

from tools.chaos.reference import Kind, expected
from tools.reading import InputId

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


class Wanted(NamedTuple):
    """The expected output of an input: how it ends, and the digests of its key and value."""

    kind: Kind
    key: int
    value: int
    omissible_bytes: int | None
    """The value's size if its dead letter may omit it, otherwise None."""


class Incarnation:
    """The inputs of one topic, by partition and offset.

    `committed`: for a deleted topic, the offsets that the group had committed by then, by partition. Inputs below them must
    have an output; the rest may have been deleted before any worker read them. None for the present topic.
    """

    def __init__(self, topic_id: str) -> None:
        self.topic_id = topic_id
        self.committed: Mapping[int, int] | None = None
        self.inputs: dict[tuple[int, int], Wanted] = {}
        self.nexts: dict[int, int] = {}
        """The offset after the last input, by partition."""

    def add(self, messages: Iterable[Message]) -> None:
        """Add inputs; each partition's must come in offset order."""
        for message in messages:
            partition, offset, value = message.partition() or 0, message.offset() or 0, message.value()
            assert offset >= self.nexts.get(partition, 0), "offsets ascend"
            wanted = expected(value)
            omissible = len(value) if value is not None and len(value) >= LARGE_BYTES else None
            self.inputs[partition, offset] = Wanted(wanted.kind, digest(message.key()), digest(wanted.value), omissible)
            self.nexts[partition] = offset + 1

    def needs_answer(self, partition: int, offset: int) -> bool:
        """Whether the input counts as lost if it has no output."""
        return self.committed is None or offset < self.committed.get(partition, 0)


class Place(NamedTuple):
    """An input: `number` is the index of its incarnation."""

    number: int
    partition: int
    offset: int


class Ledger:
    """All incarnations, oldest first, how many outputs each input has, and which inputs had one while the workers ran."""

    def __init__(self, incarnations: Sequence[Incarnation]) -> None:
        self.incarnations = incarnations
        self.answers: Counter[Place | None] = Counter()
        self.seen: set[Place | None] = set()
        self._numbers = {each.topic_id: number for number, each in enumerate(incarnations)}

    def __getitem__(self, place: Place) -> Wanted:
        return self.incarnations[place.number].inputs[place.partition, place.offset]

    def is_clear(self, input_id: InputId) -> bool:
        """Whether it says of which topic it is. An output without a topic id does only if there was exactly one."""
        return input_id.topic_id is not None or len(self.incarnations) == 1

    def find(self, input_id: InputId) -> Place | None:
        """The place of an input; None if there is no such input, or it is not clear which one it is."""
        if not self.is_clear(input_id):
            return None
        number = 0 if input_id.topic_id is None else self._numbers.get(input_id.topic_id)
        if number is None or (input_id.partition, input_id.offset) not in self.incarnations[number].inputs:
            return None
        return Place(number, input_id.partition, input_id.offset)
