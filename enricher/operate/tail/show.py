"""Draws a record: as text with its entities in their sentences, or as one line of JSON. Fetches nothing."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson
from rich.text import Text

from enricher.operate.tail.excerpts import Excerpt, marks_in, printable, sentences
from enricher.worker.articles import record_as_json
from enricher.worker.heads import KINDS
from enricher.worker.records import Article, RawRecord

_COLOURS = {"PER": "green", "LOC": "cyan", "ORG": "magenta", "MISC": "yellow"}
_OTHER_COLOURS = ("blue", "red", "bright_green", "bright_cyan", "bright_magenta", "bright_yellow")
_MAX_SENTENCES = 8


def header_texts(record: RawRecord) -> dict[str, str | None]:
    """The headers as text; if a name occurs twice, the last one counts, as the contract says."""
    return {name: None if value is None else _text(value) for name, value in record.headers}


def json_of(record: RawRecord) -> bytes:
    """The value of an enriched record as JSON, whichever format it is in. Raises ValueError if it is in none of ours."""
    content_type = dict(record.headers).get("content-type")
    return record_as_json(record.value or b"", content_type)


def as_line(record: RawRecord) -> bytes:
    """The record as one JSON object. A value that is in none of our formats, as a dead letter's may be, becomes a string."""
    return orjson.dumps({
        "topic": record.partition.topic,
        "partition": record.partition.number,
        "offset": record.offset,
        "timestamp_s": record.timestamp_s,
        "key": None if record.key is None else _text(record.key),
        "headers": header_texts(record),
        "value": None if record.value is None else _value(record),
    })  # fmt: skip


def enriched_lines(
    document: Mapping[str, Any], article: Article | None, facts: str, *, colours: bool
) -> Iterator[Text]:
    """The lines for one enriched record: title, sentences with entities, facts."""
    entities = document["entities"]
    excerpts = _excerpts(entities, article)
    if excerpts is None:
        yield Text(printable(document["id"]), style="bold" if colours else "")
        yield from _without_text(entities, colours=colours)
    else:
        title, body = excerpts
        yield highlight(title, colours=colours, style="bold")
        yield from (Text("  ") + highlight(part, colours=colours) for part in body[:_MAX_SENTENCES])
        if len(body) > _MAX_SENTENCES:
            yield Text(f"  ... and {len(body) - _MAX_SENTENCES} more sentences with entities", style="dim")
    yield from _tasks(document)
    coverage = document["coverage"]
    cut = ", truncated" if coverage["truncated"] else ""
    counts = f"{len(entities)} entities, {coverage['tokens']} tokens, {coverage['windows']} window(s){cut}"
    yield Text(f"  {printable(document['id'])}: {counts}, {facts}", style="dim")


def _tasks(document: Mapping[str, Any]) -> Iterator[Text]:
    """A line for each task that ran and finds no entities: its classes, or the dimensions of its vector."""
    for task in document.get("tasks", ()):
        name = task["name"]
        if task["coverage"] is None:
            yield Text(printable(f"  {name}: not for the article's language"), style="dim")
        elif kind := KINDS.get(task["kind"]):  # a later version may know more kinds
            found = kind.tail_text([each for each in document[kind.listed_in] if each.get("task") == name])
            if found is not None:
                yield Text(printable(f"  {name}: {found}"))


def foreign(record: RawRecord) -> Text:
    """The line for a record in the output topic that is not an enriched record."""
    partition = record.partition
    return Text(f"not an enriched record: {partition.topic}[{partition.number}]@{record.offset}", style="dim")


def dead_letter(record: RawRecord) -> Iterator[Text]:
    """The lines for one dead letter: its reason and the position of its input, never its text."""
    headers = {name.removeprefix("enricher.dlq."): value for name, value in header_texts(record).items()}
    source = f"{headers.get('source.topic')}[{headers.get('source.partition')}]@{headers.get('source.offset')}"
    reason = f"{headers.get('stage')}: {headers.get('error.type')}: {headers.get('error.message')}"
    yield Text.assemble((printable(reason), "bold red"))
    yield Text(printable(f"  {source}, attempts {headers.get('attempts')}, {headers.get('time')}"), style="dim")


def highlight(excerpt: Excerpt, *, colours: bool, style: str = "") -> Text:
    """The text with its entities marked by colour and label, or by brackets without colours."""
    text, position = Text(style=style if colours else ""), 0
    for mark in excerpt.marks:
        text.append(printable(excerpt.text[position : mark.start]))
        text.append_text(_entity(excerpt.text[mark.start : mark.end], mark.label, colours=colours))
        position = mark.end
    return text.append(printable(excerpt.text[position:]))


def _excerpts(entities: Sequence[Mapping[str, Any]], article: Article | None) -> tuple[Excerpt, list[Excerpt]] | None:
    """Title and sentences; None if the article is gone, or is not the one that the record was made from."""
    if article is None:
        return None
    title_marks = marks_in(entities, "title", article.title)
    body_marks = marks_in(entities, "body", article.body, article.source_map)
    if title_marks is None or body_marks is None:
        return None
    title = Excerpt(article.title, tuple(title_marks)) if article.title.strip() else Excerpt(article.id, ())
    return title, sentences(article.body, body_marks)


def _without_text(entities: Sequence[Mapping[str, Any]], *, colours: bool) -> Iterator[Text]:
    for field in ("title", "body"):
        found = [_entity(e["text"], e["label"], colours=colours) for e in entities if e["field"] == field]
        if found:
            yield Text(f"  {field}: ") + Text(", ").join(found)


def _entity(text: str, label: str, *, colours: bool) -> Text:
    if not colours:
        return Text(printable(f"[{text} {label}]"))
    colour = _COLOURS.get(label) or _OTHER_COLOURS[zlib.crc32(label.encode()) % len(_OTHER_COLOURS)]
    return Text.assemble((printable(text), f"bold {colour}"), (f" {printable(label)}", f"dim {colour}"))


def _value(record: RawRecord) -> Any:  # noqa: ANN401  any JSON
    """The value in one line, as it is written: parsing and writing JSON would round long numbers and refuse deep nesting."""
    try:
        value = json_of(record)
        orjson.loads(value)
    except ValueError:
        return _text(record.value or b"")
    # JSON strings hold no line breaks, so every line break is between tokens.
    return orjson.Fragment(value.replace(b"\r", b" ").replace(b"\n", b" "))


def _text(value: bytes) -> str:
    return value.decode("utf-8", "backslashreplace")
