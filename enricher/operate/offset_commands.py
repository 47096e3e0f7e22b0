"""The commands `offsets set` and `offsets skip`: where a group goes on.

`set` prints what changes, and commits it as an outsider. `skip` steps over a batch that no worker can unpack, as a member
of the group. It uses the worker's own source and sink: the dead letters and the offset behind them are in one transaction,
which the broker refuses if a worker has joined meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated

import orjson
import typer
from confluent_kafka import KafkaError, TopicPartition

from enricher.errors import BrokerError, FatalError, NoAnswer, SettingsError
from enricher.operate.behind_outputs import BehindOutputs
from enricher.operate.inspector import Inspector
from enricher.worker.commands.console import Ticker, remark_console, write_line
from enricher.worker.commands.topic_options import parse_time
from enricher.worker.kafka.errors import UNREADABLE, Complaint, broker_errors, without_recovery
from enricher.worker.kafka.partition_reader import NO_END, commit_as_outsider, lone_reader, may_pass
from enricher.worker.kafka.properties import KafkaConfig
from enricher.worker.kafka.ranges import UnreadableBatches
from enricher.worker.kafka.sink import TransactionalSink
from enricher.worker.kafka.source import KafkaSource
from enricher.worker.records import Mark, Partition, Release
from enricher.worker.rules.commit_metadata import CommitMetadata
from enricher.worker.rules.dead_letter_limits import DeadLetterLimits, Limits
from enricher.worker.runtime.deadlines import Deadline, until
from enricher.worker.runtime.watchdog import Watchdog
from enricher.worker.settings import Settings, load_settings
from enricher.worker.stats import Counters
from enricher.worker.wiring.formats import encoder_of, writer_of
from enricher.worker.wiring.kafka_clients import kafka_config

_PER_TRANSACTION = 500
_DIGITS = 20
"""No offset has so many: offsets have 63 bits."""
_POLL_S = 0.1


def offsets_set(
    group: Annotated[str, typer.Argument(help="The consumer group. It must have no members.")],
    topic: Annotated[str, typer.Argument(help="The input topic.")],
    *,
    at: Annotated[
        str, typer.Option("--at", metavar="beginning|end|behind-outputs|TIME|OFFSET", help="Where the group goes on.")
    ],
    partition: Annotated[
        list[int] | None, typer.Option(min=0, show_default=False, help="Only this partition; may be repeated.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would change, and commit nothing.")] = False,
) -> None:
    """Set the committed offsets of a group that has no members, and print each partition with its old and new offset.

    `beginning` is the first offset that retention has left: everything is enriched again. `end` is the present end:
    what is there and not yet enriched is left out. `behind-outputs` is for a group that has lost its offsets: it
    searches the output topics of the settings, which must be those of this group, for the newest output of each
    partition, and goes on behind it, or at the beginning if there is none; if compaction or retention may have removed
    the newest, it refuses. A TIME such as 2026-11-24 or 2026-11-24T06:00Z (UTC, if it has no zone) is the first record
    of each partition with this timestamp of Kafka's or a later one, or the end. An OFFSET such as 4711 is for the one
    --partition that is named.

    Exit code: 0; 1 if the group has members; 2 for settings; 4 for the broker, or if the outputs cannot tell.
    It needs READ on the group and on the topic; `behind-outputs` also READ on the output topics.
    """
    settings = load_settings()
    config = replace(kafka_config(settings).of_input(topic), group_id=group)
    complaint = Complaint(config)
    if at == "behind-outputs":
        _require_outputs_of(group, settings)
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
            case digits if digits.isdecimal() and len(digits) < _DIGITS and len(partition or ()) == 1:
                to = {numbers[0]: int(digits)}
                _require_inside(ask, topic, to)
            case time if since := parse_time(time):
                to = _at_time(ask, topic, numbers, since)
            case _:
                raise SettingsError(
                    f"--at {at}: it is beginning, end, behind-outputs, a time, or the offset of one --partition"
                )
        topic_id = ask.topic_id(topic)
        for number, offset in sorted(to.items()):
            old = before[number].offset
            write_line(orjson.dumps({"partition": number, "from": old if old >= 0 else None, "to": offset}))
        if not dry_run:
            commit_as_outsider(config, complaint, [_commit_of(before[n], offset, topic_id) for n, offset in to.items()])


def _require_outputs_of(group: str, settings: Settings) -> None:
    """Raise SettingsError for the group of a replay, say: outputs of the live workers would be taken for its own."""
    kafka = settings.kafka
    if group != kafka.group_id:
        raise SettingsError(
            f"the settings name the group '{kafka.group_id}' and its topics '{kafka.output_topic}' and "
            f"'{kafka.dead_letter_topic}': for '{group}', set ENRICHER_KAFKA__GROUP_ID={group}, "
            "ENRICHER_KAFKA__OUTPUT_TOPIC and ENRICHER_KAFKA__DEAD_LETTER_TOPIC to where it writes"
        )


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


def _at_time(ask: Inspector, topic: str, numbers: Sequence[int], since: datetime) -> dict[int, int]:
    """The first offset since that time, or the end, of each partition. Raises SettingsError if the time is to come."""
    if since > datetime.now(UTC):
        raise SettingsError(f"--at {since.isoformat()} is in the future; 'end' is where the topic ends now")
    # In this order, a record that comes in between is not skipped.
    ends = ask.ends(topic, numbers, committed_only=True)
    found = ask.at_time(topic, numbers, since.timestamp())
    return {number: ends[number] if at is None else at for number, at in found.items()}


def _require_inside(ask: Inspector, topic: str, to: Mapping[int, int]) -> None:
    """Raise BrokerError for offsets that the topic does not have: a worker would begin somewhere else."""
    lows, ends = ask.beginnings(topic, [*to]), ask.ends(topic, [*to], committed_only=False)
    for number, offset in to.items():
        if not lows[number] <= offset <= ends[number]:
            raise BrokerError(f"{topic}[{number}] has offsets {lows[number]} to {ends[number]}, not {offset}")


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
    letters and the offset behind them are committed together; the group then goes on behind the batch. The settings must be
    those of the group, whose dead-letter topic gets the letters.

    Exit code: 0; 1 if the group has members, or the next record can be read; 2 for settings; 4 for the broker. It needs the
    rights of a worker.
    """
    settings = load_settings()
    _require_outputs_of(group, settings)
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
