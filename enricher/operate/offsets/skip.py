"""The command `offsets skip`: steps over a batch that no worker can unpack, as a member of the group.

It uses the worker's own source and sink: the dead letters and the offset behind them are in one transaction, which the
broker refuses if a worker has joined meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Annotated

import orjson
import typer
from confluent_kafka import KafkaError

from enricher.errors import FatalError, NoAnswer
from enricher.operate.inspector import Inspector
from enricher.worker.commands.console import write_line
from enricher.worker.kafka.errors import UNREADABLE, Complaint, broker_errors, without_recovery
from enricher.worker.kafka.partition_reader import NO_END, lone_reader, may_pass
from enricher.worker.kafka.properties import KafkaConfig
from enricher.worker.kafka.ranges import UnreadableBatches
from enricher.worker.kafka.sink import TransactionalSink
from enricher.worker.kafka.source import KafkaSource
from enricher.worker.records import Partition, Release
from enricher.worker.rules.dead_letter_limits import DeadLetterLimits, Limits
from enricher.worker.runtime.deadlines import Deadline, until
from enricher.worker.runtime.watchdog import Watchdog
from enricher.worker.settings import Settings, load_settings
from enricher.worker.stats import Counters
from enricher.worker.wiring.formats import encoder_of, writer_of
from enricher.worker.wiring.kafka_clients import kafka_config

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
