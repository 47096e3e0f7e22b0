"""The commands `dead-letters list`, `show` and `accept`. What is shown is foreign: it is bounded, and made printable."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Annotated

import orjson
import typer
from confluent_kafka import Message, TopicPartition
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from enricher.errors import FatalError, SettingsError
from enricher.operate.dead_letters.letters import letter_of
from enricher.operate.inspect.follow import RecordFinder
from enricher.operate.inspect.inspector import Inspector
from enricher.worker.commands.console import Ticker, data_console, printable, remark_console, write_line
from enricher.worker.kafka.errors import Complaint
from enricher.worker.kafka.partition_reader import commit_as_outsider
from enricher.worker.kafka.properties import KafkaConfig
from enricher.worker.kafka.ranges import RangeReader
from enricher.worker.records import Partition, RawRecord, ReachedLimit
from enricher.worker.rules.commit_metadata import CommitMetadata
from enricher.worker.settings import load_settings
from enricher.worker.wiring.kafka_clients import kafka_config

_MOST_VALUES = 10_000
"""Different values of one kind that are counted apart: whoever writes to the topic chooses them."""
_MOST_CHARS = 300  # Kafka's names of topics have 249 at most
_MOST_ROWS = 30
_OTHERS = "(others)"


_PLACE = re.compile(r"([0-9]{1,9}):([0-9]{1,18})")


def dead_letters_list(
    *, as_json: Annotated[bool, typer.Option("--json", help="Print the counts as a JSON object.")] = False
) -> None:
    """Count the dead letters by stage, type of error, hour and source partition. Only reads.

    It counts what the topic holds, redriven or not; `redrive --dry-run` counts what would be sent. Hours are UTC.

    Exit code: 0, 2 for settings, 4 for the broker. It needs READ on the dead-letter topic.
    """
    config = kafka_config(load_settings())
    with Ticker(remark_console()) as ticker:
        counts = count(_read_letters(config, ticker))
    if as_json:
        write_line(orjson.dumps(counts.as_json(), option=orjson.OPT_INDENT_2))
        return
    console = data_console()
    if counts.total:
        console.print(_table(counts))
    others = f", {counts.not_ours:,} records that are no dead letters" if counts.not_ours else ""
    console.print(f"{counts.total:,} dead letters in {escape(config.dead_letter_topic)}{others}", soft_wrap=True)


@dataclass(slots=True)
class Counts:
    """Dead letters by value, for each kind of value; `not_ours`: records that break the contract."""

    total: int = 0
    not_ours: int = 0
    by: dict[str, Counter[str]] = field(
        default_factory=lambda: {kind: Counter() for kind in ("stage", "type", "hour", "source partition")}
    )

    def as_json(self) -> dict[str, object]:
        """The object printed by `--json`."""
        by = {f"by_{kind.replace(' ', '_')}": dict(counter) for kind, counter in self.by.items()}
        return {"total": self.total, "not_ours": self.not_ours, **by}


def count(messages: Iterable[Message]) -> Counts:
    """Count the records of a dead-letter topic."""
    counts = Counts()
    for message in messages:
        letter = letter_of(message)
        if letter is None:
            counts.not_ours += 1
            continue
        counts.total += 1
        source = letter.source
        values = {
            "stage": letter.stage,
            "type": letter.error_type,
            "hour": datetime.fromtimestamp(letter.time_s, UTC).strftime("%Y-%m-%dT%HZ"),
            "source partition": f"{source.topic}-{source.partition}",
        }
        for kind, value in values.items():
            counter = counts.by[kind]
            name = printable(value[:_MOST_CHARS])
            counter[name if name in counter or len(counter) < _MOST_VALUES else _OTHERS] += 1
    return counts


def _read_letters(config: KafkaConfig, ticker: Ticker) -> Iterator[Message]:
    """The committed records of the dead-letter topic, to where it ends now."""
    topic = config.dead_letter_topic
    with closing(Inspector(config)) as inspector:
        lows, ends = inspector.beginnings(topic), inspector.ends(topic, committed_only=True)
    with closing(RangeReader(config, committed_only=True, progress=ticker.show_step)) as reader:
        yield from reader.read(topic, {n: (lows[n], end) for n, end in ends.items()}, f"reading '{topic}'")


def _table(counts: Counts) -> Table:
    table = Table("by", "value", "dead letters")
    table.columns[2].justify = "right"
    for kind, counter in counts.by.items():
        rows = sorted(counter.items(), reverse=True) if kind == "hour" else counter.most_common()
        for index, (value, number) in enumerate(rows[:_MOST_ROWS]):
            table.add_row(kind if index == 0 else "", escape(value), f"{number:,}")
        if (left := len(rows) - _MOST_ROWS) > 0:
            table.add_row("", f"... and {left:,} more (--json lists them)", "")
        table.add_section()
    return table


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


def dead_letters_accept(
    group: Annotated[
        str, typer.Argument(metavar="GROUP", help="Consumer group of the workers that ended with code 12.")
    ],
) -> None:
    """Let workers read on where one of their group ended at its limit of dead letters.

    Run it once the cause is gone, or if the articles there should become dead letters. Stop the workers before: the offsets
    of a group with members are not touched. Only the note beside the offsets is removed, so nothing is skipped or repeated;
    the workers count from 0 again.

    Exit code: 0, 1 if the group has members, 2 for settings, 4 for the broker. It needs READ on the input topics and on the
    group.
    """
    config = replace(kafka_config(load_settings()), group_id=group)
    complaint = Complaint(config)
    # The broker refuses offsets from outside while the group has members. So those that are read here, with no transaction
    # pending that may change them, are still the same when they are committed.
    with closing(Inspector(config, complaint, stable=True)) as ask:
        committed = [tp for topic in config.inputs for tp in ask.committed_offsets(topic)]
    accepted = {}
    for tp in committed:
        metadata = CommitMetadata.decode(tp.metadata)
        if (reached := metadata.reached_limit) != ReachedLimit():
            cleared = replace(metadata, reached_limit=ReachedLimit()).encode()
            line = f"{tp.topic}[{tp.partition}] offset {tp.offset}: accepted ({reached.reason})"
            accepted[line] = TopicPartition(tp.topic, tp.partition, tp.offset, metadata=cleared)
    if accepted:
        commit_as_outsider(config, complaint, [*accepted.values()])
    for line in accepted or [f"no worker of '{group}' ended at a limit of dead letters"]:
        data_console().print(line, markup=False, soft_wrap=True)
