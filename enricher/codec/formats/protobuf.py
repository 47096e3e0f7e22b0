"""Reads Protobuf by google.protobuf. The schema is compiled once, into a pool of its own.

What bounds it: the parser takes 100 levels; `protobuf_cost` counts submessages before a payload is parsed that could become
too large; `protobuf_documents` counts values. The schema's compiler runs in a process with limits (`protobuf_protoc`).

A payload begins with which of the schema's messages it is. Confluent: a list of indexes, from the top level down, as signed
varints; a single 0 byte is the first message. AWS Glue: one unsigned varint, the place among all messages by full name.
Bytes after a message cannot be told from fields, so there are none to refuse.
"""

from __future__ import annotations

from collections.abc import Callable

from enricher.codec.formats.limits import MAX_LEVELS, Budget, Foreign, unreadable, unusable
from enricher.codec.formats.protobuf_cost import check_cost, cost_of
from enricher.codec.formats.protobuf_documents import MessageType
from enricher.codec.formats.protobuf_files import loaded
from enricher.codec.schemas import Decoder, Document, Schema
from enricher.errors import InvalidArticle

_Parse = Callable[[bytes], Document]
_MAX_VARINT_BYTES = 5
_SHOWN = 8
"""Indexes in an error."""


def compile_protobuf(schema: Schema, *, glue: bool = False) -> Decoder:
    """The decoder of a schema's messages. Blocks for up to half a minute. Raises InvalidArticle.

    `glue`: payloads begin with AWS Glue's index, not with Confluent's.
    """
    pool, file = loaded(schema)
    if not file.message_type:
        raise unusable("Protobuf", "it declares no message")
    find = _GlueIndex(file) if glue else _ConfluentIndexes(file)
    parsers: dict[str, _Parse] = {}
    types: dict[str, MessageType] = {}

    def decode(payload: bytes) -> Document:
        name, position = find(payload)
        if name not in parsers:
            parsers[name] = _parser(pool, name, types)
        return parsers[name](payload[position:])

    return decode


def _parser(pool: Foreign, name: str, types: dict[str, MessageType]) -> _Parse:
    """The function that reads messages of one type."""
    from google.protobuf.message import DecodeError  # noqa: PLC0415  only for those who read Protobuf
    from google.protobuf.message_factory import GetMessageClass  # noqa: PLC0415

    descriptor = pool.FindMessageTypeByName(name)
    cost = cost_of(descriptor, pool)
    new_message = GetMessageClass(descriptor)
    methods = _Methods()
    message_type = types.get(name) or MessageType(descriptor, types, methods.has_field)

    def parse(payload: bytes) -> Document:
        check_cost(payload, cost)
        message = new_message()
        try:
            methods.parse(message, payload)
            document = message_type.document(Budget(), message)
        except InvalidArticle:
            raise
        except DecodeError:
            raise unreadable("Protobuf", "it is damaged, not UTF-8, or nested too deeply") from None
        except UnicodeDecodeError:
            raise unreadable("Protobuf", "a string is not UTF-8") from None
        except Exception as error:  # noqa: BLE001  a schema may declare Google's own types, which we know, in its own way
            raise unreadable("Protobuf", type(error).__name__) from None
        if not methods.is_initialized(message):
            raise unreadable("Protobuf", "a required field is missing")
        return document

    return parse


class _Methods:
    """Protobuf's methods as functions: a message may have fields and nested types of their names."""

    def __init__(self) -> None:
        from google.protobuf.empty_pb2 import Empty  # noqa: PLC0415

        self.parse = _inherited(Empty, "ParseFromString")
        self.is_initialized = _inherited(Empty, "IsInitialized")
        self.has_field = _inherited(Empty, "HasField")


def _inherited(message_class: type, name: str) -> Foreign:
    """A method of what all classes of messages inherit from."""
    return next(base.__dict__[name] for base in message_class.__mro__ if name in base.__dict__)


class _ConfluentIndexes:
    """Finds the message by Confluent's indexes: (full name, where its bytes begin)."""

    def __init__(self, file: Foreign) -> None:
        self._file = file
        self._first = _qualified(file, file.message_type[0].name)

    def __call__(self, payload: bytes) -> tuple[str, int]:
        if payload[:1] == b"\x00":
            return self._first, 1
        count, position = _signed(payload, 0)
        if not 0 < count <= MAX_LEVELS:
            raise unreadable("Protobuf", "the number of its message indexes is negative or too large")
        indexes = []
        for _ in range(count):
            index, position = _signed(payload, position)
            indexes.append(index)
        return self._name(indexes), position

    def _name(self, indexes: list[int]) -> str:
        """Clients count differently where a map is declared before a nested message: Python's includes its entries."""
        with_entries, without = (self._path(indexes, entries=entries) for entries in (True, False))
        if with_entries != without:
            raise unreadable(
                "Protobuf", f"message indexes {indexes} mean {with_entries} in Python and {without} in Java"
            )
        return without

    def _path(self, indexes: list[int], *, entries: bool) -> str:
        names, messages = [], self._file.message_type
        for index in indexes:
            found = [each for each in messages if entries or not each.options.map_entry]
            if not 0 <= index < len(found):
                raise unreadable("Protobuf", f"its schema has no message with the indexes {indexes[:_SHOWN]}")
            names.append(found[index].name)
            messages = found[index].nested_type
        return _qualified(self._file, ".".join(names))


class _GlueIndex:
    """Finds the message by AWS Glue's index: (full name, where its bytes begin)."""

    def __init__(self, file: Foreign) -> None:
        names, missing = [], [("", file.message_type)]
        while missing:
            outer, messages = missing.pop()
            for each in messages:
                names.append(outer + each.name)
                missing.append((f"{outer}{each.name}.", each.nested_type))
        self._names = sorted(_qualified(file, name) for name in names)

    def __call__(self, payload: bytes) -> tuple[str, int]:
        index, position = _unsigned(payload, 0)
        if index >= len(self._names):
            raise unreadable("Protobuf", f"its schema has no message with AWS Glue's index {index}")
        return self._names[index], position


def _qualified(file: Foreign, name: str) -> str:
    return f"{file.package}.{name}" if file.package else name


def _signed(payload: bytes, position: int) -> tuple[int, int]:
    number, position = _unsigned(payload, position)
    return (number >> 1) ^ -(number & 1), position


def _unsigned(payload: bytes, position: int) -> tuple[int, int]:
    number = 0
    for shift, byte in enumerate(payload[position : position + _MAX_VARINT_BYTES]):
        number |= (byte & 0x7F) << (7 * shift)
        if byte < 0x80:
            return number, position + shift + 1
    raise unreadable("Protobuf", "its message indexes are damaged or end too early")
