"""Estimates the memory that a Protobuf payload will take, before it is parsed.

Two bytes are an empty submessage, for which Protobuf reserves room for all fields of its type: 4 MB of them are 32 GB for a
type with 1,000 fields. So the submessages of a payload that could become too large are counted first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from enricher.worker.articles.formats.decoder_limits import MAX_LEVELS, MAX_VALUES, Foreign, unreadable

MAX_PARSED_BYTES = 64 << 20
"""Room that the submessages of one payload may take."""

_LEAST_BYTES = -(-MAX_PARSED_BYTES // MAX_VALUES)
"""A message counts at least as much, because each will be a value of the document."""

_MESSAGE_BYTES = 64
_FIELD_BYTES = 16
"""A string's address and length, which is the most that a field takes in its message."""

_SMALLEST_BYTES = 2
_VARINT, _LENGTH, _GROUP, _GROUP_END = 0, 2, 3, 4
_FIXED_BYTES = {1: 8, 5: 4}


@dataclass(eq=False, slots=True)
class Cost:
    """A message type: its room in memory, and the types of the fields that are messages, by number."""

    room_bytes: int
    fields: dict[int, Cost] = field(default_factory=dict)


_UNKNOWN = Cost(0)


@dataclass(frozen=True, slots=True)
class Costs:
    """The types of a schema, which share the types that they contain; extensions that the schema declares are fields."""

    by_name: Mapping[str, Cost]
    largest_bytes: int
    """Room of the largest type that is the type of a field."""

    @classmethod
    def of(cls, descriptors: Sequence[Foreign], pool: Foreign) -> Costs:
        """The costs of these types, which must contain the types of all their fields."""
        fields = {
            each.full_name: [*each.fields, *(pool.FindAllExtensions(each) if each.is_extendable else ())]
            for each in descriptors
        }
        costs = {name: Cost(_MESSAGE_BYTES + _FIELD_BYTES * len(found)) for name, found in fields.items()}
        below = set[str]()
        for name, found in fields.items():
            inside = {each.number: each.message_type.full_name for each in found if each.message_type}
            costs[name].fields.update((number, costs[type_name]) for number, type_name in inside.items())
            below.update(inside.values())
        return cls(costs, max((costs[name].room_bytes for name in below), default=0))


def check_cost(payload: bytes, cost: Cost, largest_bytes: int) -> None:
    """Raise InvalidArticle for a payload whose submessages take too much room; a payload too short for that is not read.

    `largest_bytes`: the room of the largest type that the message may contain. Damage that it meets is refused, too.
    """
    if len(payload) // _SMALLEST_BYTES * largest_bytes <= MAX_PARSED_BYTES:
        return
    try:
        _Count(payload).message(0, len(payload), cost, level=1)
    except (IndexError, KeyError):
        raise unreadable("Protobuf", "it is damaged, or ends too early") from None


class _Count:
    """Counts the fields of messages and groups without parsing them. IndexError, KeyError: the payload is damaged."""

    def __init__(self, payload: bytes) -> None:
        self._payload = payload
        self._left = MAX_PARSED_BYTES
        self._fields_left = MAX_VALUES

    def message(self, position: int, end: int, cost: Cost, *, level: int, group: bool = False) -> int:
        """The end of the message that begins here."""
        payload = self._payload
        while position < end:
            self._fields_left -= 1
            if self._fields_left < 0:
                raise unreadable("Protobuf", f"it has more than {MAX_VALUES} fields, unknown ones included")
            tag, position = _varint(payload, position)
            kind = tag & 7
            if kind == _LENGTH:
                length, position = _varint(payload, position)
                inner = cost.fields.get(tag >> 3)
                if position + length > end:
                    raise IndexError
                if inner is not None:
                    self._enter(inner, level)
                    if length:
                        self.message(position, position + length, inner, level=level + 1)
                position += length
            elif kind == _GROUP:
                inner = cost.fields.get(tag >> 3, _UNKNOWN)
                self._enter(inner, level)
                position = self.message(position, end, inner, level=level + 1, group=True)
            elif kind == _GROUP_END and group:
                return position
            else:
                position = _varint(payload, position)[1] if kind == _VARINT else position + _FIXED_BYTES[kind]
        if position > end or group:
            raise IndexError
        return position

    def _enter(self, inner: Cost, level: int) -> None:
        self._left -= max(inner.room_bytes, _LEAST_BYTES)
        if self._left < 0:
            raise unreadable("Protobuf", f"its messages take more than {MAX_PARSED_BYTES >> 20} MiB of memory")
        if level >= MAX_LEVELS:
            raise unreadable("Protobuf", f"more than {MAX_LEVELS} levels")


def _varint(payload: bytes, position: int) -> tuple[int, int]:
    """A number, and the position behind it. Most have one byte."""
    number = payload[position]
    if number < 0x80:
        return number, position + 1
    number &= 0x7F
    for shift in range(7, 70, 7):
        position += 1
        byte = payload[position]
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, position + 1
    raise IndexError
