"""The command `dead-letters show`: one dead letter, with its reason and headers. Its bytes only when they are asked for."""

from __future__ import annotations

import re
import sys
from contextlib import closing
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from enricher.errors import FatalError, SettingsError
from enricher.operate.inspect.follow import RecordFinder
from enricher.worker.build.kafka_clients import kafka_config
from enricher.worker.commands.console import data_console, printable, write_line
from enricher.worker.records import Partition, RawRecord
from enricher.worker.settings import load_settings

_PLACE = re.compile(r"([0-9]{1,9}):([0-9]{1,18})")


def dead_letters_show(
    place: Annotated[str, typer.Argument(metavar="PARTITION:OFFSET", help="Where it is in the dead-letter topic.")],
    *,
    with_bytes: Annotated[
        bool, typer.Option("--bytes", help="Print its value instead, which is text of an article.")
    ] = False,
) -> None:
    """Show a dead letter: its reason and all headers. Only reads.

    The value is never shown without --bytes. On a terminal its control characters are replaced by spaces; in a file or pipe
    it is written as it is, with a line end behind it.

    Exit code: 0, 1 if there is no such record, 2 for settings, 4 for the broker. It needs READ on the dead-letter topic.
    """
    match = _PLACE.fullmatch(place)
    if match is None:
        raise SettingsError(f"'{place}' is no place of a dead letter: write PARTITION:OFFSET, for example 3:1042")
    config = kafka_config(load_settings())
    with closing(RecordFinder(config, timeout_s=config.request_timeout_s)) as finder:
        record = finder.find(Partition(config.dead_letter_topic, int(match[1])), int(match[2]))
    if record is None:
        raise FatalError(f"there is no committed record at {place} of '{config.dead_letter_topic}'")
    if not with_bytes:
        _show(record, data_console())
    elif record.value is None:
        raise FatalError(
            "its value is null: it is the dead letter of a tombstone, or the value was omitted for its size"
        )
    elif sys.stdout.isatty():
        _print(data_console(), "", record.value)
    else:
        write_line(record.value)


def _show(record: RawRecord, console: Console) -> None:
    for name, value in (("key", record.key), *record.headers):
        _print(console, f"{printable(name)}: ", value)
    size = "null" if record.value is None else f"{len(record.value):,} bytes (--bytes prints them)"
    console.print(f"value: {size}")


def _print(console: Console, label: str, value: bytes | None) -> None:
    """Print foreign bytes so that they do nothing but appear."""
    text = "null" if value is None else printable(value.decode("utf-8", "backslashreplace"))
    console.print(Text(f"{label}{text}"), soft_wrap=True)
