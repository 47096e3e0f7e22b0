"""`enricher tail` shows the records of the output or dead-letter topic as they appear, as text or as lines of JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from typing import Annotated, Any

import orjson
import typer

from enricher.operate.inspector import TopicReader
from enricher.worker.articles import record_as_json
from enricher.worker.commands.console import data_console, printable, remark_console, write_line
from enricher.worker.heads import KINDS, NER
from enricher.worker.records import RawRecord
from enricher.worker.settings import load_settings
from enricher.worker.wiring.kafka_clients import kafka_config

_POLL_S = 0.2


def tail(
    *,
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", help="Start with the oldest record instead of the next one.")
    ] = False,
    limit: Annotated[int | None, typer.Option(min=1, help="End after this many records.")] = None,
    until_end: Annotated[
        bool, typer.Option("--until-end", help="End where the topic ended when the command started.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print each record as a JSON object on one line.")] = False,
    dead_letters: Annotated[bool, typer.Option("--dead-letters", help="Show dead letters with their reasons.")] = False,
) -> None:
    """Show enriched records as they appear, with what was found in them. Ctrl-C ends it.

    It joins no group and commits nothing.
    """
    config = kafka_config(load_settings())
    topic = config.dead_letter_topic if dead_letters else config.output_topic
    lines_of = dead_letter_lines if dead_letters else record_lines
    console = data_console()
    with (
        suppress(KeyboardInterrupt),
        closing(TopicReader(config, topic, newest=None if from_beginning else 0)) as reader,
    ):
        if not (as_json or until_end):
            newer = "" if from_beginning else " for new records (those that are there: --from-beginning)"
            remark_console().print(f"following {topic}{newer}; Ctrl-C ends")
        for count, record in enumerate(follow(reader, until_end=until_end), start=1):
            if as_json:
                write_line(as_line(record))
            else:
                for line in lines_of(record):
                    console.print(printable(line), markup=False, soft_wrap=True)
            if count == limit:
                break


def follow(reader: TopicReader, *, until_end: bool) -> Iterator[RawRecord]:
    """The records of a topic."""
    while not (until_end and reader.finished):
        for record in reader.poll(_POLL_S):
            if not until_end or record.offset < reader.ends[record.partition.number]:
                yield record


def as_line(record: RawRecord) -> bytes:
    """The record as one JSON object. A value that is in none of our formats, as a dead letter's may be, becomes a string."""
    return orjson.dumps({
        "topic": record.partition.topic,
        "partition": record.partition.number,
        "offset": record.offset,
        "timestamp_s": record.timestamp_s,
        "key": None if record.key is None else _text(record.key),
        "headers": _header_texts(record),
        "value": None if record.value is None else _value(record),
    })  # fmt: skip


def record_lines(record: RawRecord) -> Iterator[str]:
    """The lines for one record of the output topic: its id and coverage, entities, and what other tasks found."""
    if record.value is None:
        yield f"deleted: {_text(record.key or b'')}"
        return
    try:
        yield from list(_lines_of(orjson.loads(_json_of(record))))
    except (ValueError, LookupError, TypeError, AttributeError):  # not written by a worker
        yield f"not an enriched record: {record.partition.topic}[{record.partition.number}]@{record.offset}"


def dead_letter_lines(record: RawRecord) -> Iterator[str]:
    """The lines for one dead letter: its reason and the position of its input, never its text."""
    headers = {name.removeprefix("enricher.dlq."): value for name, value in _header_texts(record).items()}
    yield f"{headers.get('stage')}: {headers.get('error.type')}: {headers.get('error.message')}"
    source = f"{headers.get('source.topic')}[{headers.get('source.partition')}]@{headers.get('source.offset')}"
    yield f"  {source}, attempts {headers.get('attempts')}, {headers.get('time')}"


def _lines_of(document: Mapping[str, Any]) -> Iterator[str]:
    coverage = document["coverage"]
    cut = ", truncated" if coverage["truncated"] else ""
    yield f"{document['id']}: {coverage['tokens']} tokens, {coverage['windows']} window(s){cut}"
    for field in ("title", "body"):
        found = [f"[{each['text']} {each['label']}]" for each in document["entities"] if each["field"] == field]
        if found:
            yield f"  {field}: {', '.join(found)}"
    for task in document.get("tasks", ()):
        name = task["name"]
        if task["coverage"] is None:
            yield f"  {name}: not for the article's language"
        elif task["kind"] != NER and (kind := KINDS.get(task["kind"])):  # a later version may know more kinds
            text = kind.text_of([each for each in document[kind.listed_in] if each.get("task") == name])
            yield f"  {name}: {text}"


def _header_texts(record: RawRecord) -> dict[str, str | None]:
    """The headers as text; if a name occurs twice, the last one counts, as the contract says."""
    return {name: None if value is None else _text(value) for name, value in record.headers}


def _json_of(record: RawRecord) -> bytes:
    """The value of an enriched record as JSON, whichever format it is in. Raises ValueError if it is in none of ours."""
    return record_as_json(record.value or b"", dict(record.headers).get("content-type"))


def _value(record: RawRecord) -> Any:  # noqa: ANN401  any JSON
    """The value in one line, as it is written: parsing and writing JSON would round long numbers and refuse deep nesting."""
    try:
        value = _json_of(record)
        orjson.loads(value)
    except ValueError:
        return _text(record.value or b"")
    # JSON strings hold no line breaks, so every line break is between tokens.
    return orjson.Fragment(value.replace(b"\r", b" ").replace(b"\n", b" "))


def _text(value: bytes) -> str:
    return value.decode("utf-8", "backslashreplace")
