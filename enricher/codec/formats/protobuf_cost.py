"""How much memory a Protobuf payload takes before anything of it has been looked at.

Two bytes are an empty submessage, for which Protobuf reserves room for all fields of its type: 4 MB of them are 32 GB for a
type with 1,000 fields. So where a payload could become too much, its submessages are counted first.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from enricher.codec.formats.limits import MAX_LEVELS, MAX_VALUES, Foreign, unreadable

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
    largest_bytes: int = 0
    """Of the types that are below the top level."""


_UNKNOWN = Cost(0)


def cost_of(descriptor: Foreign, pool: Foreign) -> Cost:
    """The costs of a type and of all that it contains, extensions that its schema declares included."""
    known: dict[str, Cost] = {}
    inside: dict[str, list[Foreign]] = {}
    missing, below = [descriptor], set[str]()
    while missing:
        each = missing.pop()
        if each.full_name in known:
            continue
        fields = [*each.fields, *pool.FindAllExtensions(each)]
        known[each.full_name] = Cost(_MESSAGE_BYTES + _FIELD_BYTES * len(fields))
        inside[each.full_name] = [field for field in fields if field.message_type]
        missing.extend(field.message_type for field in inside[each.full_name])
    for name, fields in inside.items():
        known[name].fields.update((field.number, known[field.message_type.full_name]) for field in fields)
        below.update(field.message_type.full_name for field in fields)
    cost = known[descriptor.full_name]
    cost.largest_bytes = max((known[name].room_bytes for name in below), default=0)
    return cost


def check_cost(payload: bytes, cost: Cost) -> None:
    """Refuse a payload whose submessages take too much room; one that is too short for that is not looked at.

    Raises InvalidArticle, also for damage that it happens to see.
    """
    if len(payload) // _SMALLEST_BYTES * cost.largest_bytes <= MAX_PARSED_BYTES:
        return
    try:
        _Count(payload).message(0, len(payload), cost, level=1)
    except (IndexError, KeyError):
        raise unreadable("Protobuf", "it is damaged, or ends too early") from None


class _Count:
    """Walks over the fields of messages and groups, without making anything. IndexError, KeyError: it is damaged."""

    def __init__(self, payload: bytes) -> None:
        self._payload = payload
        self._left = MAX_PARSED_BYTES

    def message(self, position: int, end: int, cost: Cost, *, level: int, group: bool = False) -> int:
        """Where the message ends that begins here."""
        payload = self._payload
        while position < end:
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
    """A number, and where it ends. Most have one byte."""
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
