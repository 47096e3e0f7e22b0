"""Reads Protobuf with google.protobuf. The schema is compiled once, into its own pool (`protobuf_schema`).

The parser takes at most 100 levels. Before a payload is parsed that could become too large, its submessages are counted: an
empty one has two bytes, and Protobuf reserves room for all fields of its type, so 4 MB of them take 32 GB for a type with
1,000 fields. `protobuf_documents` counts values.

A payload begins with the indexes of its message in the schema: a list, from the top level down, as signed varints; a single
0 byte is the first message. Bytes after a message cannot be told from fields, so there are none to refuse.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from enricher.errors import InvalidArticle
from enricher.worker.articles.envelope import FIRST_MESSAGE
from enricher.worker.articles.formats.protobuf_documents import MessageTypes
from enricher.worker.articles.formats.protobuf_schema import load_files
from enricher.worker.articles.schemas import (
    MAX_LEVELS,
    MAX_VALUES,
    Budget,
    Decoder,
    Document,
    Foreign,
    Schema,
    unreadable,
    unusable,
)

MAX_PARSED_BYTES = 64 << 20
"""Room that the submessages of one payload may take."""

_LEAST_BYTES = -(-MAX_PARSED_BYTES // MAX_VALUES)
"""The least that a message counts, because each becomes a value of the document."""
_MESSAGE_BYTES = 64
_FIELD_BYTES = 16
"""A string's address and length, which is the most that a field takes in its message."""
_SMALLEST_BYTES = 2
_VARINT, _LENGTH, _GROUP, _GROUP_END = 0, 2, 3, 4
_FIXED_BYTES = {1: 8, 5: 4}
_MAX_VARINT_BYTES = 5
_SHOWN = 8
"""The number of indexes in an error message."""


def compile_protobuf(schema: Schema) -> Decoder:
    """The decoder of a schema's messages. Blocks for up to half a minute. Raises InvalidArticle."""
    pool, file, descriptors = load_files(schema)
    if not file.message_type:
        raise unusable("Protobuf", "it declares no message")
    find = _MessageIndexes(file)
    messages = _Messages(pool, descriptors)

    def decode(payload: bytes) -> Document:
        name, position = find(payload)
        return messages.document(name, payload[position:])

    return decode


class _Messages:
    """Reads the messages of one schema."""

    def __init__(self, pool: Foreign, descriptors: Sequence[Foreign]) -> None:
        from google.protobuf.empty_pb2 import Empty  # noqa: PLC0415  only for those who read Protobuf
        from google.protobuf.message import DecodeError, Message  # noqa: PLC0415

        self._costs = Costs.of(descriptors, pool)
        # Not `GetMessageClass`, which calls itself for the type of each field: it fails for a chain of 450 types. All
        # classes are kept, because one that nobody refers to is made again.
        self._classes = {
            each.full_name: type(Empty)(each.name, (Message,), {"DESCRIPTOR": each, "__module__": None})
            for each in descriptors
        }
        # Functions, because a message may have fields and nested types of the names of these methods.
        self._parse, self._is_initialized, has_field = (
            _inherited_method(Empty, name) for name in ("ParseFromString", "IsInitialized", "HasField")
        )
        self._types = MessageTypes(has_field)
        self._decode_error = DecodeError

    def document(self, name: str, payload: bytes) -> Document:
        """The document of a message of the type with this full name. Raises InvalidArticle."""
        check_cost(payload, self._costs.by_name[name], self._costs.largest_bytes)
        message_class = self._classes[name]
        message = message_class()
        try:
            self._parse(message, payload)
            document = self._types.message(message_class.DESCRIPTOR).document(Budget(len(payload)), message)
        except InvalidArticle:
            raise
        except self._decode_error:
            raise unreadable("Protobuf", "it is damaged, not UTF-8, or nested too deeply") from None
        except UnicodeDecodeError:
            raise unreadable("Protobuf", "a string is not UTF-8") from None
        except Exception as error:  # noqa: BLE001  a schema may declare Google's types differently from what we expect
            raise unreadable("Protobuf", type(error).__name__) from None
        if not self._is_initialized(message):
            raise unreadable("Protobuf", "a required field is missing")
        return document


def _inherited_method(message_class: type, name: str) -> Foreign:
    """A method that all classes of messages inherit."""
    return next(base.__dict__[name] for base in message_class.__mro__ if name in base.__dict__)


class _MessageIndexes:
    """Finds the message by Confluent's indexes: (full name, where its bytes begin)."""

    def __init__(self, file: Foreign) -> None:
        self._top = _Nested(file.package, file.message_type)
        self._first = self._top.without[0].full_name

    def __call__(self, payload: bytes) -> tuple[str, int]:
        if payload[:1] == FIRST_MESSAGE:
            return self._first, 1
        count, position = _signed_varint(payload, 0)
        if not 0 < count <= MAX_LEVELS:
            raise unreadable("Protobuf", "the number of its message indexes is negative or too large")
        indexes = []
        for _ in range(count):
            index, position = _signed_varint(payload, position)
            indexes.append(index)
        return self._name(indexes), position

    def _name(self, indexes: list[int]) -> str:
        """The full name. Raises InvalidArticle if a map before a nested message makes clients count differently."""
        with_entries, without = (self._path(indexes, entries=entries) for entries in (True, False))
        if with_entries != without:
            raise unreadable(
                "Protobuf", f"message indexes {indexes} mean {with_entries} in Python and {without} in Java"
            )
        return without

    def _path(self, indexes: list[int], *, entries: bool) -> str:
        nested, name = self._top, ""
        for index in indexes:
            messages = nested.with_entries if entries else nested.without
            if not 0 <= index < len(messages):
                raise unreadable("Protobuf", f"its schema has no message with the indexes {indexes[:_SHOWN]}")
            name, nested = messages[index].full_name, messages[index].nested
        return name


class _Declared:
    """A message that a file declares, and the messages within it."""

    def __init__(self, outer: str, message: Foreign) -> None:
        self.full_name = f"{outer}.{message.name}" if outer else message.name
        self.is_entry = message.options.map_entry
        self.nested = _Nested(self.full_name, message.nested_type)


class _Nested:
    """The messages of one level: with the entries of maps, as Python's client counts them, and without, as Java's does."""

    def __init__(self, outer: str, messages: Iterable[Foreign]) -> None:
        self.with_entries = [_Declared(outer, each) for each in messages]
        self.without = [each for each in self.with_entries if not each.is_entry]


def _signed_varint(payload: bytes, position: int) -> tuple[int, int]:
    number, position = _unsigned_varint(payload, position)
    return (number >> 1) ^ -(number & 1), position


def _unsigned_varint(payload: bytes, position: int) -> tuple[int, int]:
    number = 0
    for shift, byte in enumerate(payload[position : position + _MAX_VARINT_BYTES]):
        number |= (byte & 0x7F) << (7 * shift)
        if byte < 0x80:
            return number, position + shift + 1
    raise unreadable("Protobuf", "its message indexes are damaged or end too early")


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


@dataclass(eq=False, slots=True)
class Cost:
    """A message type: its room in memory, and the types of the fields that are messages, by number."""

    room_bytes: int
    fields: dict[int, Cost] = field(default_factory=dict)


_UNKNOWN = Cost(0)


@dataclass(frozen=True, slots=True)
class Costs:
    """The costs of a schema's types, which share the types that they contain.

    Extensions that the schema declares are fields.
    """

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


class _Count:
    """Counts the fields of messages and groups without parsing them. Raises IndexError or KeyError for a damaged payload."""

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
