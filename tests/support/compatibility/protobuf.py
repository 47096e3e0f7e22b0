"""Protobuf: whether a reader with one schema understands the bytes that are written with another.

Fields are matched by number. Confluent's registry allows much that our promise does not (a removed or renamed field,
another type with the same bytes), because a reader still gets through; those findings weigh `PROMISED`. A renamed field
reads well in bytes, and changes its name in code and in JSON, which is what our consumers see.
"""

from __future__ import annotations

from collections.abc import Iterator

from support.compatibility.findings import Finding, Sides, Weight
from support.compatibility.protobuf_files import Field, File, Message, parse

__all__ = ["compare", "parse"]

_NUMBERS = {"varint", "zigzag", "fixed32", "fixed64", "float", "double"}


def compare(writer: File, reader: File, sides: Sides) -> Iterator[Finding]:
    """What a reader with the one schema misreads of what is written with the other."""
    if writer.package != reader.package:
        packages = f"{writer.package or 'empty'} in the {sides.writer} schema, {reader.package or 'empty'} in the other"
        yield Finding("/", f"its package is {packages}")
        return
    for name, message in writer.messages.items():
        if name not in reader.messages:
            yield Finding(f"/{name}", f"the {sides.reader} schema has no such message", Weight.WRITER_KNOWS_MORE)
        else:
            yield from _messages(message, reader.messages[name], f"/{name}", sides)
    for name, constants in writer.enums.items():
        yield from _enums(constants, reader.enums.get(name), f"/{name}", sides)


def _messages(writer: Message, reader: Message, place: str, sides: Sides) -> Iterator[Finding]:
    for number, field in writer.fields.items():
        here = f"{place}/{field.name}"
        if number in reader.fields:
            yield from _fields(field, reader.fields[number], here, sides)
        else:
            yield from _missing(field, writer, reader, here, sides)
    for number, field in reader.fields.items():
        if number not in writer.fields and field.label == "required":
            yield Finding(
                f"{place}/{field.name}",
                f"the {sides.reader} schema requires it, and the {sides.writer} one does not have it",
            )
        if number not in writer.fields and _is_reserved(field, writer):
            yield Finding(
                f"{place}/{field.name}",
                f"the {sides.writer} schema reserves its name or number {number}",
                Weight.PROMISED,
            )
    yield from _reservations(writer, reader, place, sides)
    yield from _oneofs(writer, reader, place, sides)


def _missing(field: Field, writer: Message, reader: Message, place: str, sides: Sides) -> Iterator[Finding]:
    """A field that only the writer has. A reader skips it; in a oneof it finds nothing set, unless the whole oneof went."""
    siblings = [each.number for each in writer.fields.values() if field.oneof and each.oneof == field.oneof]
    oneof_gone = field.oneof not in {each.oneof for each in reader.fields.values()} and not reader.fields.keys() & set(
        siblings
    )
    if field.label == "required":
        yield Finding(place, f"the {sides.reader} schema has no such field, which is required")
    elif field.oneof and not oneof_gone:
        yield Finding(
            place, f"the {sides.reader} schema has no such field in oneof {field.oneof}, so a reader finds it empty"
        )
    elif _is_reserved(field, reader):
        yield Finding(place, f"the {sides.reader} schema has no such field", Weight.PROMISED)
    else:
        text = (
            f"the {sides.reader} schema has no such field and does not reserve its number {field.number} and its name"
        )
        yield Finding(place, text, Weight.PROMISED)


def _fields(writer: Field, reader: Field, place: str, sides: Sides) -> Iterator[Finding]:
    number = writer.number
    repeated = {writer.label == "repeated", reader.label == "repeated"}
    text = f"number {number} is {writer.shown} in the {sides.writer} schema, {reader.shown} in the {sides.reader} one"
    if writer.wire != reader.wire or (len(repeated) == 2 and writer.wire in _NUMBERS):
        yield Finding(place, text)
    elif writer.shown != reader.shown:
        yield Finding(place, text, Weight.PROMISED)
    if writer.name != reader.name:
        yield Finding(place, f"number {number} is called {reader.name} in the {sides.reader} schema", Weight.PROMISED)


def _oneofs(writer: Message, reader: Message, place: str, sides: Sides) -> Iterator[Finding]:
    """Fields that a writer may set together, and of which a reader keeps the last one only."""
    groups: dict[str, set[str]] = {}
    for number, field in reader.fields.items():
        if field.oneof and number in writer.fields:
            groups.setdefault(field.oneof, set()).add(writer.fields[number].oneof or f"field {number}")
    for oneof, origins in groups.items():
        if len(origins) > 1:
            text = f"the {sides.writer} schema can set several of its fields, of which the {sides.reader} one keeps one"
            yield Finding(f"{place}/{oneof}", text)
    for number, field in writer.fields.items():
        if number in reader.fields and field.oneof != reader.fields[number].oneof:
            where = f"{_oneof(reader.fields[number])} in the {sides.reader} one"
            text = f"it is in {_oneof(field)} in the {sides.writer} schema, in {where}"
            yield Finding(f"{place}/{field.name}", text, Weight.PROMISED)


def _oneof(field: Field) -> str:
    return f"oneof {field.oneof}" if field.oneof else "no oneof"


def _reservations(writer: Message, reader: Message, place: str, sides: Sides) -> Iterator[Finding]:
    gone = [name for name in sorted(writer.reserved_names) if name not in reader.reserved_names]
    numbers = [
        each for each in writer.reserved_numbers if not any(_within(each, other) for other in reader.reserved_numbers)
    ]
    gone += [f"{each.start} to {each.stop - 1}" if len(each) > 1 else str(each.start) for each in numbers]
    if gone:
        yield Finding(
            f"{place}/reserved", f"the {sides.reader} schema does not reserve {', '.join(gone)}", Weight.PROMISED
        )


def _within(inner: range, outer: range) -> bool:
    return outer.start <= inner.start and inner.stop <= outer.stop


def _is_reserved(field: Field, message: Message) -> bool:
    return any(field.number in each for each in message.reserved_numbers) or field.name in message.reserved_names


def _enums(writer: dict[int, str], reader: dict[int, str] | None, place: str, sides: Sides) -> Iterator[Finding]:
    """The registry allows every change, because readers keep unknown numbers. To us names matter, and the zero."""
    if reader is None:
        yield Finding(place, f"the {sides.reader} schema has no such enum", Weight.PROMISED)
        return
    for number, name in writer.items():
        if reader.get(number) != name:
            other = f"calls it {reader[number]}" if number in reader else "does not have it"
            zero = ", and it is what an absent field reads as" if number == 0 else ""
            yield Finding(
                f"{place}/{name}",
                f"it is number {number}, and the {sides.reader} schema {other}{zero}",
                Weight.PROMISED,
            )
