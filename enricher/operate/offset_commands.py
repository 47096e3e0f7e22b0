"""The commands `offsets set` and `offsets skip`: where a group goes on.

`set` prints what changes, and commits it as an outsider. `skip` steps over a batch that no worker can unpack, as a member
of the group. It uses the worker's own source and sink: the dead letters and the offset behind them are in one transaction,
which the broker refuses if a worker has joined meanwhile.

`BehindOutputs` finds where a group stood that has lost its committed offsets, from its newest outputs. Every output names
its input's partition and offset and was committed with it, and the outputs of one partition are in the order of these
offsets. So the newest output of a partition (or dead letter, if that is newer) shows where to go on. Two things hide newer
outputs. An open transaction is waited for. Compaction removes outputs, deletions of articles above all: where it may have
removed the newest outputs, the newest one that is left is only a lower bound.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer
from confluent_kafka import KafkaError, TopicPartition

from enricher.errors import BrokerError, FatalError, NoAnswer, SettingsError
from enricher.operate.inspector import Inspector
from enricher.worker.commands.console import Ticker, remark_console, write_line
from enricher.worker.kafka.errors import UNREADABLE, Complaint, broker_errors, without_recovery
from enricher.worker.kafka.metadata import headers_of
from enricher.worker.kafka.partition_reader import NO_END, commit_as_outsider, lone_reader, may_pass
from enricher.worker.kafka.properties import KafkaConfig
from enricher.worker.kafka.ranges import Progress, RangeReader, UnreadableBatches
from enricher.worker.kafka.sink import TransactionalSink
from enricher.worker.kafka.source import KafkaSource
from enricher.worker.records import Headers, Mark, Partition, Release
from enricher.worker.rules.commit_metadata import CommitMetadata
from enricher.worker.rules.dead_letter_limits import DeadLetterLimits, Limits
from enricher.worker.runtime.deadlines import Deadline, until
from enricher.worker.runtime.watchdog import Watchdog
from enricher.worker.settings import Settings, load_settings
from enricher.worker.stats import Counters
from enricher.worker.wiring.formats import encoder_of, writer_of
from enricher.worker.wiring.kafka_clients import kafka_config

_OPEN_S = 30.0
"""How much longer than its timeout a transaction of a killed worker may stay open: brokers look every 10 s."""
_ASK_AGAIN_S = 0.5
_FIRST_LOOK = 64  # offsets from the end; nearly always the very last record is ours
_WIDEN = 16
_SOURCES = ("enricher.source", "enricher.dlq.source")
_MARKER = 1
"""Offsets without a record behind our newest output that are no sign of a missing one: a missing output would leave two, its
own and that of the marker which ended its transaction."""


def offsets_set(
    group: Annotated[str, typer.Argument(help="The consumer group. It must have no members.")],
    topic: Annotated[str, typer.Argument(help="The input topic.")],
    *,
    at: Annotated[
        str, typer.Option("--at", metavar="beginning|end|behind-outputs|FILE", help="Where the group goes on.")
    ],
    partition: Annotated[
        list[int] | None, typer.Option(min=0, show_default=False, help="Only this partition; may be repeated.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would change, and commit nothing.")] = False,
) -> None:
    """Set the committed offsets of a group that has no members, and print each partition with its old and new offset.

    `beginning` is the first offset that retention has left: everything is enriched again. `end` is that of now: what is
    there and not yet enriched stays so. `behind-outputs` is for a group that has lost its offsets: it searches the output
    topics of the settings for the newest output of each partition, and goes on behind it, or at the beginning if there is
    none; if compaction or retention may have removed the newest, it refuses. A FILE has what `--dry-run` prints, edited: a
    JSON object per line, such as `{"partition": 3, "to": 4711}`.

    Exit code: 0; 1 if the group has members; 2 for settings and the file; 4 for the broker, or if the outputs cannot tell.
    It needs READ on the group and on the topic; `behind-outputs` also READ on the output topics.
    """
    config = replace(kafka_config(load_settings()).of_input(topic), group_id=group)
    complaint = Complaint(config)
    with closing(Inspector(config, complaint, stable=True)) as ask, Ticker(remark_console()) as ticker:
        numbers = _chosen(topic, ask.partitions(topic), partition)
        before = {tp.partition: tp for tp in ask.committed_offsets(topic, numbers)}
        match at:
            case "beginning":
                to = ask.beginnings(topic, numbers)
            case "end":
                to = ask.ends(topic, numbers, committed_only=True)
            case "behind-outputs":
                found = BehindOutputs(config, ask, ticker.show_step).next_offsets(numbers)
                to = {**ask.beginnings(topic, numbers), **found}
            case file:
                to = _offsets_in(Path(file))
                _chosen(topic, numbers, [*to])
                _require_inside(ask, topic, to)
        topic_id = ask.topic_id(topic)
        for number, offset in sorted(to.items()):
            old = before[number].offset
            write_line(orjson.dumps({"partition": number, "from": old if old >= 0 else None, "to": offset}))
        if not dry_run:
            commit_as_outsider(config, complaint, [_commit_of(before[n], offset, topic_id) for n, offset in to.items()])


def _commit_of(before: TopicPartition, offset: int, topic_id: str) -> TopicPartition:
    """The offset with the metadata of the one before, except for attempts: these were made at the old offset."""
    old = CommitMetadata.decode(before.metadata)
    kept = old if before.offset >= 0 and old.is_of(topic_id) else CommitMetadata()
    metadata = replace(kept, topic_id=topic_id, mark=Mark()).encode()
    return TopicPartition(before.topic, before.partition, offset, metadata=metadata)


def _chosen(topic: str, there: Sequence[int], wanted: Sequence[int] | None) -> Sequence[int]:
    if unknown := {*(wanted or ())} - {*there}:
        raise SettingsError(
            f"the topic '{topic}' has {len(there)} partitions, not {', '.join(map(str, sorted(unknown)))}"
        )
    return sorted({*wanted}) if wanted else there


def _offsets_in(file: Path) -> dict[int, int]:
    """Partitions and offsets of a file. Raises SettingsError."""
    found: dict[int, int] = {}
    try:
        lines = file.read_bytes().splitlines()
    except OSError as error:
        raise SettingsError(f"--at {file}: {error.strerror}. It is beginning, end, behind-outputs or a file") from error
    for count, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row: Any = orjson.loads(line)
            number, offset = row["partition"], row["to"]
        except (orjson.JSONDecodeError, TypeError, KeyError) as error:
            raise SettingsError(f'{file}, line {count}: expected {{"partition": 3, "to": 4711}}') from error
        if not (type(number) is int and type(offset) is int) or number in found:
            raise SettingsError(f"{file}, line {count}: partition and offset are whole numbers, each partition once")
        found[number] = offset
    return found


def _require_inside(ask: Inspector, topic: str, to: Mapping[int, int]) -> None:
    """Raise BrokerError for offsets that the topic does not have: a worker would begin somewhere else."""
    lows, ends = ask.beginnings(topic, [*to]), ask.ends(topic, [*to], committed_only=False)
    for number, offset in to.items():
        if not lows[number] <= offset <= ends[number]:
            raise BrokerError(f"{topic}[{number}] has offsets {lows[number]} to {ends[number]}, not {offset}")


@dataclass(frozen=True, slots=True)
class _Newest:
    """The newest output of ours in one partition. `next_offset`: behind its input; None if there is none of this topic.

    `recordless`: offsets behind that output at which there is no record: markers, aborted records, removed ones.
    """

    next_offset: int | None
    recordless: int


class BehindOutputs:
    """Searches the output topics of `config` for outputs of its input topic."""

    def __init__(self, config: KafkaConfig, ask: Inspector, progress: Progress) -> None:
        self._config = config
        self._ask = ask
        self._progress = progress
        self._topic_id = ask.topic_id(config.input_topic)

    def next_offsets(self, numbers: Sequence[int]) -> dict[int, int]:
        """The offset after the newest input with an output; partitions without outputs are left out.

        Blocks while a transaction is open, and for the search. Raises NoAnswer if it stays open, BrokerError if the outputs
        cannot tell, or may not be read.
        """
        found: dict[int, int] = {}
        doubtful: dict[int, str] = {}
        for topic in dict.fromkeys((self._config.output_topic, self._config.dead_letter_topic)):
            for number, newest in self._newest_in(topic, numbers).items():
                if newest.next_offset is not None:
                    found[number] = max(found.get(number, 0), newest.next_offset)
                if newest.recordless > _MARKER:
                    doubtful.setdefault(number, topic)
        self._check(found, doubtful)
        return found

    def _newest_in(self, topic: str, numbers: Sequence[int]) -> dict[int, _Newest]:
        there = self._ask.partitions(topic)
        written = {number for number, end in self._ask.ends(topic, there, committed_only=False).items() if end}
        # An end of 0 means that the partition was never written, not even with a transaction marker.
        if not written:
            return {}
        if beyond := [number for number in numbers if number >= len(there)]:
            raise self._cannot_tell(
                beyond[0], f"'{topic}' has only {len(there)} partitions, so it may be in any of them"
            )
        bounds = self._stable_bounds(topic, [number for number in numbers if number in written])
        newest = self._search(topic, bounds)
        for number, (low, _end) in bounds.items():
            if low > 0 and number not in newest:
                raise self._cannot_tell(number, f"its records in '{topic}' were deleted")
        return newest

    def _stable_bounds(self, topic: str, numbers: Sequence[int]) -> dict[int, tuple[int, int]]:
        """The first offset of each partition, and its end, once no transaction hides what is there now.

        Transactions that begin meanwhile are not waited for: a shared topic may always have one open.
        """
        marks = self._ask.ends(topic, numbers, committed_only=False)
        stable: dict[int, int] = {}

        def all_visible() -> bool:
            stable.update(self._ask.ends(topic, numbers, committed_only=True))
            self._progress(f"waiting for open transactions in '{topic}'", sum(stable.values()), sum(marks.values()))
            return all(stable[number] >= mark for number, mark in marks.items())

        if not until(all_visible, Deadline(self._config.transaction_timeout_s + _OPEN_S), pause_s=_ASK_AGAIN_S):
            hidden = ", ".join(str(number) for number, mark in marks.items() if stable[number] < mark)
            raise NoAnswer(
                f"an open transaction in '{topic}', partitions {hidden}, hides what is behind it. Wait for its end, or end "
                "it with kafka-transactions (find-hanging, abort), and run this again"
            )
        lows = self._ask.beginnings(topic, numbers)
        return {number: (lows[number], end) for number, end in stable.items()}

    def _search(self, topic: str, bounds: Mapping[int, tuple[int, int]]) -> dict[int, _Newest]:
        """The newest output of ours in each partition, backwards from the end in growing steps."""
        found, records = dict[int, tuple[int, int | None]](), Counter[int]()
        ends, offsets = {number: end for number, (_low, end) in bounds.items()}, _FIRST_LOOK
        with closing(RangeReader(self._config, committed_only=True, progress=self._progress)) as reader:
            while ends:
                starts = {number: max(bounds[number][0], end - offsets) for number, end in ends.items()}
                behind = records.copy()
                ranges = {number: (start, ends[number]) for number, start in starts.items()}
                for message in reader.read(topic, ranges, f"searching '{topic}' for the newest outputs"):
                    number, offset = message.partition() or 0, message.offset() or 0
                    source = _source_of(headers_of(message), self._config.input_topic, number)
                    if source is None:
                        records[number] += 1
                    else:
                        found[number], records[number] = (offset, self._next_offset(*source)), behind[number]
                ends = {n: start for n, start in starts.items() if n not in found and start > bounds[n][0]}
                offsets *= _WIDEN
        newest = {}
        for number, (low, end) in bounds.items():
            at, next_offset = found.get(number, (low - 1, None))
            if number in found or low == 0:
                newest[number] = _Newest(next_offset, end - at - 1 - records[number])
        return newest

    def _next_offset(self, offset: int, topic_id: str | None) -> int | None:
        """The offset behind this input; None if the input was in an earlier topic of the name."""
        return offset + 1 if topic_id in {None, self._topic_id} else None

    def _check(self, found: Mapping[int, int], doubtful: Mapping[int, str]) -> None:
        """Raise BrokerError for an output of an earlier topic, or if compaction may have removed the newest output."""
        topic = self._config.input_topic
        ends = self._ask.ends(topic, [*found.keys() | doubtful.keys()], committed_only=True)
        for number, offset in found.items():
            # Nothing else shows it where brokers have no topic ids.
            if offset > ends[number]:
                reason = f"its newest output is of offset {offset - 1}, and the topic ends at {ends[number]}"
                raise self._cannot_tell(number, reason)
        for number, output_topic in doubtful.items():
            # At the end of the input there is nothing left that could have an output.
            if found.get(number, 0) >= ends[number]:
                continue
            compacted = self._ask.is_compacted(output_topic)
            if compacted is not False:
                how = "is compacted" if compacted else "may be compacted (only DESCRIBE_CONFIGS on it tells)"
                reason = f"'{output_topic}' {how}, and behind its newest output are offsets without a record"
                raise self._cannot_tell(number, reason)

    def _cannot_tell(self, number: int, reason: str) -> BrokerError:
        return BrokerError(
            f"the outputs of {self._config.input_topic}[{number}] do not show where the group stood: {reason}. "
            "Give the offsets in a file (--at FILE), or --at beginning to read everything again, or --at end"
        )


def _source_of(headers: Headers, topic: str, number: int) -> tuple[int, str | None] | None:
    """Offset and topic id of the input that these headers name, if it is in this partition of the topic.

    Our headers come last, so the last header of a name counts.
    """
    values = {name: value for name, value in headers if value is not None}
    prefix = _SOURCES["enricher.dlq.stage" in values]
    offset, topic_id = values.get(f"{prefix}.offset", b""), values.get(f"{prefix}.topic.id")
    named = values.get(f"{prefix}.topic"), values.get(f"{prefix}.partition")
    is_offset = offset.isdigit() and len(offset) < 20  # 64 bits have no more digits
    if named != (topic.encode(), b"%d" % number) or not is_offset or not (topic_id or b"").isascii():
        return None
    return int(offset), topic_id.decode() if topic_id else None


_PER_TRANSACTION = 500
_POLL_S = 0.1


def offsets_skip(
    group: Annotated[str, typer.Argument(help="The consumer group. It must have no members.")],
    topic: Annotated[str, typer.Argument(help="The input topic.")],
    *,
    partition: Annotated[
        int, typer.Option(min=0, show_default=False, help="The partition that the workers cannot read.")
    ],
) -> None:
    """Step over a batch that no worker can unpack: each of its records becomes a dead letter without key and value.

    The batch must be the next one that the group would read, as it is where a worker has ended because of it (code 4). The
    letters and the offset behind them are committed together; the group then goes on behind the batch.

    Exit code: 0; 1 if the group has members, or the next record can be read; 2 for settings; 4 for the broker. It needs the
    rights of a worker.
    """
    settings = load_settings()
    config = kafka_config(settings)
    config = replace(config.of_input(topic), group_id=group, instance=f"{config.instance}-skip")
    place = Partition(topic, partition)
    with closing(Inspector(config, stable=True)) as ask:
        if members := ask.members():
            raise FatalError(f"the group '{group}' has {members} members: stop its workers, then run this again")
        [committed] = ask.committed_offsets(topic, [partition])
    if committed.offset < 0:
        raise FatalError(f"the group '{group}' has no committed offset for {topic}[{partition}]")
    with without_recovery():
        error, begins = _unreadable_at(config, place, committed.offset)
        batches = UnreadableBatches(config)
        span = batches.span(place, committed.offset, error, begins)
        with _membership(settings, config, place, committed.offset) as (source, sink):
            for first in range(span.start, span.stop, _PER_TRANSACTION):
                part = range(first, min(first + _PER_TRANSACTION, span.stop))
                letters = batches.letters(place, part, source.watch.topic_ids[topic])
                sink.publish(Release(letters, {place: part.stop}))
    write_line(orjson.dumps({"partition": partition, "from": committed.offset, "to": span.stop, "letters": len(span)}))


def _unreadable_at(config: KafkaConfig, place: Partition, offset: int) -> tuple[KafkaError, int]:
    """The client's error about the batch at the offset, and where it says that the batch begins.

    Raises FatalError if there is none, NoAnswer if nothing comes.
    """
    complaint, doing = Complaint(config), f"reading {place.topic}[{place.number}] at offset {offset}"
    reader = lone_reader(config, complaint, {})
    with closing(reader), broker_errors(reader.consumer, doing, complaint):
        ranges, deadline = {place.number: (offset, NO_END)}, Deadline(config.request_timeout_s)
        for message in reader.read(
            place.topic, ranges, lambda error: may_pass(error, {UNREADABLE}), deadline=deadline, limit=1
        ):
            if message is None:
                continue
            error = message.error()
            if error is not None and error.code() == UNREADABLE:
                return error, message.offset() or 0
            break
        else:
            raise NoAnswer(f"{doing}: nothing came within {config.request_timeout_s:g} s")
    raise FatalError(f"what {place.topic}[{place.number}] has at offset {offset} can be read: there is nothing to skip")


@contextmanager
def _membership(
    settings: Settings, config: KafkaConfig, place: Partition, offset: int
) -> Iterator[tuple[KafkaSource, TransactionalSink]]:
    """A member that has the partition and reads nothing, and its sink. Raises NoAnswer if the group does not give it."""
    writer, _ = writer_of(settings)
    with Watchdog() as watchdog, closing(KafkaSource(config)) as source:
        sink = TransactionalSink(
            config,
            encoder_of(settings, writer),
            source=source,
            guard=watchdog.guard,
            counters=Counters(),
            dead_letters=DeadLetterLimits(Limits(), config.group_id),
        )
        with closing(sink):
            sink.open()
            source.open(_NothingInFlight())
            source.pause()

            def is_ours() -> bool:
                source.poll(1, _POLL_S)
                start = source.start_of(place)
                return start is not None and start.offset == offset

            if not until(is_ours, Deadline(config.start_timeout_s), pause_s=0.0):
                raise NoAnswer(
                    f"the group '{config.group_id}' did not give {place.topic}[{place.number}] to this command"
                )
            yield source, sink


class _NothingInFlight:
    """A listener for a member that reads nothing."""

    def _ignore(self, partitions: Sequence[Partition]) -> None:
        """Do nothing: there is nothing to publish or forget."""

    assigned = revoked = lost = _ignore
