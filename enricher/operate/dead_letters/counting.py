"""The command `dead-letters list`: counts dead letters by their headers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Annotated

import orjson
import typer
from confluent_kafka import Message
from rich.markup import escape
from rich.table import Table

from enricher.operate.dead_letters.letters import letter_of
from enricher.operate.inspect.inspector import Inspector
from enricher.worker.build.kafka_clients import kafka_config
from enricher.worker.commands.console import Ticker, data_console, printable, remark_console, write_line
from enricher.worker.kafka.reading.ranges import RangeReader
from enricher.worker.kafka.shared.client import KafkaConfig
from enricher.worker.settings import load_settings

_MOST_VALUES = 10_000
"""Different values of one kind that are counted apart: whoever writes to the topic chooses them."""
_MOST_CHARS = 300  # Kafka's names of topics have 249 at most
_MOST_ROWS = 30
_OTHERS = "(others)"


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
