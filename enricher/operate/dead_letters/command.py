"""The commands `dead-letters list`, `show`, `accept` and `redrive`. Texts of letters are bounded and made printable.

`redriving` makes the run of a redrive; its options, progress and last line are here.
"""

from __future__ import annotations

import re
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Annotated

import orjson
import typer
from confluent_kafka import Message, TopicPartition
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from enricher.errors import FatalError, SettingsError
from enricher.operate.dead_letters.letters import Selection, letter_of
from enricher.operate.dead_letters.redriving import MOST_RECORDS, Ending, Readers, Redrive, RedriveOptions
from enricher.operate.dead_letters.sender import Sender
from enricher.operate.inspector import Inspector, RecordFinder
from enricher.worker.commands.console import Ticker, data_console, printable, remark_console, write_line
from enricher.worker.commands.topic_options import TIME_FORMS, InputOption, time_option, with_one_input
from enricher.worker.kafka.errors import Complaint, without_recovery
from enricher.worker.kafka.partition_reader import commit_as_outsider
from enricher.worker.kafka.properties import KafkaConfig
from enricher.worker.kafka.ranges import RangeReader
from enricher.worker.records import Partition, RawRecord, ReachedLimit
from enricher.worker.rules.commit_metadata import CommitMetadata
from enricher.worker.rules.read_limits import RateLimit
from enricher.worker.runtime.watchdog import Watchdog
from enricher.worker.settings import Settings, load_settings
from enricher.worker.wiring.kafka_clients import kafka_config

_MOST_VALUES = 10_000
"""Different values of one kind that are counted apart: whoever writes to the topic chooses them."""
_MOST_CHARS = 300  # Kafka's names of topics have 249 at most
_MOST_ROWS = 30
_OTHERS = "(others)"
_MAX_RATE = 1_000_000.0
"""The highest `--rate`: more than there will be, and no infinity."""
_BURST_S = 0.1
"""The largest burst after a pause: the letters of this much time, at least one."""


_PLACE = re.compile(r"([0-9]{1,9}):([0-9]{1,18})")


_ALWAYS_NAMED: set[Ending] = {"superseded", "loop_guard", "not_available", "not_selected"}


def dead_letters_list(
    *, as_json: Annotated[bool, typer.Option("--json", help="Print the counts as a JSON object.")] = False
) -> None:
    """Count the dead letters by reason, stage, type of error, hour and source partition. Only reads.

    A reason is the message without its values; deploy/dead-letters.md has the cause and cure of each. The example is the
    place of a letter in the dead-letter topic, for `dead-letters show`. Counted is what the topic holds, redriven or not;
    `redrive --dry-run` counts what would be sent. Hours are UTC.

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
    """Dead letters by value, for each kind of value; `not_ours`: records that break the contract.

    `examples`: the place of the last letter that was read, by reason.
    """

    total: int = 0
    not_ours: int = 0
    by: dict[str, Counter[str]] = field(
        default_factory=lambda: {kind: Counter() for kind in ("reason", "stage", "type", "hour", "source partition")}
    )
    examples: dict[str, str] = field(default_factory=dict)

    def as_json(self) -> dict[str, object]:
        """The object printed by `--json`."""
        by = {f"by_{kind.replace(' ', '_')}": dict(counter) for kind, counter in self.by.items()}
        return {"total": self.total, "not_ours": self.not_ours, **by, "examples": self.examples}


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
        counts.examples[letter.reason] = f"{letter.number}:{letter.offset}"
        values = {
            "reason": letter.reason,
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
    table = Table("by", "value", "dead letters", "example")
    table.columns[2].justify = "right"
    for kind, counter in counts.by.items():
        rows = sorted(counter.items(), reverse=True) if kind == "hour" else counter.most_common()
        for index, (value, number) in enumerate(rows[:_MOST_ROWS]):
            example = counts.examples[value] if kind == "reason" else ""
            table.add_row(kind if index == 0 else "", escape(value), f"{number:,}", example)
        if (left := len(rows) - _MOST_ROWS) > 0:
            table.add_row("", f"... and {left:,} more (--json lists them)")
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
    topic, number = config.dead_letter_topic, int(match[1])
    with closing(Inspector(config)) as inspector:
        there = inspector.partitions(topic)
    if number not in there:
        raise SettingsError(f"'{topic}' has no partition {number}: its partitions are 0 to {there[-1]}")
    with closing(RecordFinder(config, timeout_s=config.request_timeout_s)) as finder:
        record = finder.find(Partition(topic, number), int(match[2]))
    if record is None:
        raise FatalError(
            f"there is no committed record at {place} of '{topic}'; `enricher dead-letters list` names one for each reason"
        )
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
    """Print foreign bytes without control characters, which could act on a terminal."""
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


_ENDINGS: dict[Ending, str] = {
    "sent_before": "sent by an earlier run",
    "superseded": "superseded by a newer record of their key",
    "loop_guard": "left by the loop guard",
    "not_available": "not available",
    "unchecked": "left because the input no longer shows whether a newer one or their own came (--unchecked sends them)",
    "refused": "refused by the input topic",
    "not_selected": "not selected",
    "not_ours": "of other topics, or no dead letters",
}


_Types = Annotated[list[str] | None, typer.Option("--type", help="Only those of this type; may be repeated.")]
_Reasons = Annotated[
    list[str] | None,
    typer.Option(metavar="TEXT", help="Only those of this reason, as `list` writes it; may be repeated."),
]


def dead_letters_redrive(  # noqa: PLR0913  each option is an argument
    *,
    error_type: _Types = None,
    reason: _Reasons = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help=f"Only those made at this time or later: {TIME_FORMS}.")
    ] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="Only those made before this time.")] = None,
    rate: Annotated[
        float | None, typer.Option(min=0.01, max=_MAX_RATE, help="Send so many per second at most.")
    ] = None,
    most: Annotated[int | None, typer.Option("--max", min=1, help="Send at most this many.")] = None,
    max_redrives: Annotated[
        int, typer.Option(min=1, help="The loop guard: leave an input that was redriven this many times already.")
    ] = 3,
    unchecked: Annotated[
        bool,
        typer.Option(
            "--unchecked",
            help="Also send those of which the input no longer shows whether a newer one came.",
        ),
    ] = False,
    input_topic: InputOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count what would be sent, and write nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the counts as a JSON object.")] = False,
) -> None:
    """Send dead letters back to their partition of the input topic, each exactly once. Workers may be running.

    Key, value and headers are those of the input; the header `enricher.redrive.count` is added, or raised. A letter is
    superseded, and not sent, if its partition of the input has a newer record or tombstone of its key. What was omitted for
    size is taken from the input, if it is still there. Only letters that were there at the start are looked at.

    A second run sends nothing again, whatever was killed meanwhile, and one with another selection still finds what this one
    left: the group `<kafka.group_id>.redrive` (`.redrive.<topic>` if there are several inputs) commits the offset of the
    first letter that is left, and behind it the records in the input name the letters that were sent. Of two at once one
    ends with code 5.

    Exit code: 0, also if letters are left; 5 if another redrive is running, 2 for settings, 4 for the broker, 6 if a
    transaction failed (run it again), 7 if one hangs. It needs READ on the dead-letter topic and on the group
    `<kafka.group_id>.redrive`, READ and WRITE on the input topic, and WRITE on the transactional ids of the workers.
    """
    times = time_option("--since", since), time_option("--until", until)
    config, group_id = _config_and_group(load_settings(), input_topic)
    options = RedriveOptions(
        selection=Selection.of(error_type or (), reason or (), *times),
        limit=most,
        most_redrives=max_redrives,
        unchecked=unchecked,
        per_transaction=MOST_RECORDS if rate is None else min(MOST_RECORDS, max(1, int(rate))),
    )
    run = partial(_open_run, config, group_id, options, rate=rate, dry_run=dry_run)
    with Ticker(remark_console()) as ticker, run(ticker) as redrive:
        redrive.run()
    counts = _counts_of(redrive)
    if as_json:
        write_line(orjson.dumps({"dry_run": dry_run, **counts}, option=orjson.OPT_INDENT_2))
    else:
        data_console().print(_last_line(counts, dry_run=dry_run), soft_wrap=True)


def _config_and_group(live: Settings, input_topic: str | None) -> tuple[KafkaConfig, str]:
    """The configuration for one input topic, and the group of its redrives."""
    config = kafka_config(with_one_input(live, input_topic))
    # The offsets that one run commits would hide the letters of other topics.
    of_topic = f".{config.input_topic}" if len(live.kafka.inputs) > 1 else ""
    return config, f"{config.group_id}.redrive{of_topic}"


def _counts_of(redrive: Redrive) -> dict[str, int]:
    """The counts, by ending, of the letters that no earlier run had settled."""
    endings: list[Ending] = ["sent", *_ENDINGS]
    reached = redrive.counts.total() - redrive.counts["not_ours"]
    return {name: redrive.counts[name] for name in endings} | {"not_reached": redrive.found - reached}


def _last_line(counts: dict[str, int], *, dry_run: bool) -> str:
    named = [f"{counts[name]:,} {text}" for name, text in _ENDINGS.items() if counts[name] or name in _ALWAYS_NAMED]
    not_reached = [f"{counts['not_reached']:,} not reached"] if counts["not_reached"] else []
    return ", ".join([f"{counts['sent']:,} {'would be sent' if dry_run else 'sent'}", *named, *not_reached])


@contextmanager
def _open_run(
    config: KafkaConfig, group_id: str, options: RedriveOptions, ticker: Ticker, *, rate: float | None, dry_run: bool
) -> Iterator[Redrive]:
    """A redrive of this group with its clients, which are closed at the end."""
    group = replace(config, group_id=group_id)

    def reader() -> RangeReader:
        return stack.enter_context(closing(RangeReader(group, committed_only=True, progress=ticker.show_step)))

    with ExitStack() as stack:
        watchdog = stack.enter_context(Watchdog())
        inspector = stack.enter_context(closing(Inspector(group, stable=True)))
        topic_ids = {topic: inspector.topic_id(topic) for topic in (config.input_topic, config.dead_letter_topic)}
        sender = stack.enter_context(closing(Sender(config, group.group_id, topic_ids=topic_ids, guard=watchdog.guard)))
        with without_recovery():
            if not dry_run:
                sender.open()
        readers = Readers(inspector, reader(), reader(), stack.enter_context(closing(RecordFinder(group))))
        if rate is not None:
            options = replace(options, wait=_Pace(rate, ticker))
        redrive = Redrive(config, options, readers, sender=None if dry_run else sender)
        if not redrive.committed:
            remark_console().print(
                f"the group '{group.group_id}' has no offsets: this is its first redrive, or Kafka has forgotten them"
            )
        try:
            yield redrive
        except BaseException:
            remark_console().print(f"ended early: {_last_line(_counts_of(redrive), dry_run=dry_run)}")
            raise


class _Pace:
    """Waits before each transaction, so that records are sent at the rate."""

    def __init__(self, rate_per_s: float, ticker: Ticker) -> None:
        self._limit = RateLimit(rate_per_s, time.monotonic(), burst_s=_BURST_S)
        self._ticker = ticker

    def __call__(self, count: int) -> None:
        for _ in range(count):
            while wait_s := self._limit.wait_s(time.monotonic()):
                self._ticker.tick(lambda: "waiting for the next transaction (--rate)")
                time.sleep(min(wait_s, 0.5))
            self._limit.count(1, time.monotonic())
