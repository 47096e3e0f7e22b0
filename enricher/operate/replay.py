"""`enricher replay` sends a bounded range of the input topic through the same worker, into other topics.

The range is committed for its own group, once, however many processes begin at the same time: per partition the offset to
begin at, and in its metadata the offset to end before. From then on every committed offset contains the bounds, so a process
that is restarted, or joins later, reads the same range, also if `end` or a time would mean other offsets by then. The worker
reads on from there to the end of the range, like any worker of any group.

A transactional id that all replays of the group share serves as a lock, also if their ranges differ: a new producer aborts
the transaction of a process that is still choosing, and waits for one that is being committed. Offsets without a member are
not fenced, so the group's state is read between opening and committing.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated, TypeVar

import typer
from confluent_kafka import TopicPartition

from enricher.errors import BrokerError, NoAnswer, ProducerFenced, RecoveryExhausted, SettingsError, TransactionTrouble
from enricher.operate.inspector import Inspector
from enricher.worker.commands.console import data_console
from enricher.worker.commands.run import RunOptions, load_and_log_settings, require_writable, work
from enricher.worker.commands.running import interrupt_code, repeating, stopped_by_signals
from enricher.worker.commands.topic_options import (
    FORMS,
    Bound,
    InputOption,
    range_name,
    ranges_between,
    require_forward,
    with_one_input,
)
from enricher.worker.kafka.errors import Complaint, mapping_errors, without_recovery
from enricher.worker.kafka.partition_reader import Ranges, lone_consumer
from enricher.worker.kafka.precheck import check_start
from enricher.worker.kafka.producers import short_lived_producer
from enricher.worker.kafka.properties import KafkaConfig, transactional_id
from enricher.worker.rules.commit_metadata import CommitMetadata
from enricher.worker.runtime.deadlines import Deadline, until
from enricher.worker.runtime.watchdog import ProcessTimer, Watchdog
from enricher.worker.settings import Settings
from enricher.worker.stats import Counters
from enricher.worker.wiring.kafka_clients import kafka_config

log = logging.getLogger(__name__)

_ASK_AGAIN_S = 0.5
_Answer = TypeVar("_Answer")


_LOCK = ("replay", "range")  # two parts: a worker has one, its instance


_DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Check everything, print the range by partition, and write nothing.")
]


def replay(  # noqa: PLR0913  one for each option
    context: typer.Context,
    *,
    start: Annotated[str, typer.Option("--from", metavar="WHEN", help=f"Where the range begins: {FORMS}.")],
    end: Annotated[
        str, typer.Option("--to", metavar="WHEN", help="Where it ends, before that record: the same forms.")
    ],
    into: Annotated[str, typer.Option("--into", metavar="TOPIC", help="Topic for the enriched records.")],
    group: Annotated[
        str, typer.Option("--group", help="Consumer group of this replay: the same in all its processes.")
    ],
    dead_letters: Annotated[
        str | None, typer.Option("--dead-letters", metavar="TOPIC", help="Default: INTO.dead-letters.")
    ] = None,
    append: Annotated[
        bool, typer.Option("--append", help="Begin although INTO has records: of another replay, for example.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Allow the topics of the live workers in --into and --dead-letters.")
    ] = False,
    input_topic: InputOption = None,
    dry_run: _DryRun = False,
    summary: Annotated[Path | None, typer.Option(help="Write the counts as JSON to this file at the end.")] = None,
    report_every_s: Annotated[
        float, typer.Option(min=0.1, max=86_400, help="Seconds between two progress lines in the log.")
    ] = 10.0,
) -> None:
    """Enrich a range of the input topic again, into another topic, exactly once.

    It needs two topics, INTO and its dead letters, with as many partitions as the input: `enricher topics create --into
    INTO` makes them. Model and everything else are set as for `run`. Start it as often as you like, with another
    kafka.instance each: the processes share the range as one consumer group, and a process that is started again goes on.
    The range is chosen once, when the first process begins: `end` is the end of the topic then. All of them end when the
    range is done.

    In a file, offsets are given by partition, and partitions that it does not name are left out: {"0": 1200, "1": 980}.
    Times are those of Kafka's records: the range begins at the first record of each partition with this time or a later one.

    Exit codes: 0 if the range is done, 130 after Ctrl-C and 143 after SIGTERM if it is not, else those of `run`.
    """
    bounds = Bound.parse("--from", start), Bound.parse("--to", end)
    watchdog = Watchdog(timer=context.find_object(ProcessTimer))
    require_writable(summary)
    live = load_and_log_settings()
    settings = _replaying(live, input_topic, group, into, dead_letters or f"{into}.dead-letters", force=force)
    config = replace(kafka_config(settings), replay=range_name(*bounds))
    with stopped_by_signals(interrupt_code) as signals:
        check_start(config)
        if dry_run:
            _print_range(config, bounds, append=append)
            return
        pinned = _pin(config, bounds, live.worker.recovery_timeout_s, append=append)
        log.info("replaying %s of '%s' into '%s'", config.replay, config.input_topic, into)
        if pinned.left:
            options = RunOptions(until_caught_up=True, summary=summary, report_every_s=report_every_s)
            work(settings, options, signals, watchdog, replay=config.replay, progress=partial(left_lines, config))
        if left := _answer_to(lambda: count_left(config), live.worker.recovery_timeout_s):
            log.info("stopped: %d offsets of the range are left; start it again to go on", left)
            raise typer.Exit(interrupt_code(signals.received or 0))
    log.info("the range is replayed: %s of '%s' is in '%s'", config.replay, config.input_topic, config.output_topic)


def _print_range(config: KafkaConfig, bounds: tuple[Bound, Bound], *, append: bool) -> None:
    """Print what would be replayed, or what is left of a replay that has begun. Raises what `_pin` raises."""
    with closing(Inspector(config, stable=True)) as ask:
        pinned = read_pinned(ask, config)
        if pinned is None:
            if not append:
                _require_empty(ask, config)
            ranges = ranges_of(ask, config.input_topic, *bounds, datetime.now(UTC))
        else:
            ranges = {number: (pinned.committed[number], end) for number, end in pinned.until.items()}
    console = data_console()
    for number, (start, end) in sorted(ranges.items()):
        console.print(f"partition {number}: offsets {start} to {end}")
    total = sum(end - start for start, end in ranges.values())
    console.print(
        f"{total:,} offsets of '{config.input_topic}' {'are left' if pinned else 'would be replayed'}: into "
        f"'{config.output_topic}', dead letters into '{config.dead_letter_topic}', group '{config.group_id}'",
        soft_wrap=True, markup=False,
    )  # fmt: skip


def _pin(config: KafkaConfig, bounds: tuple[Bound, Bound], patience_s: float, *, append: bool) -> Pinned:
    """Choose the range, or read which one the first process of the replay has chosen. Raises what `_answer_to` raises."""
    now = datetime.now(UTC)

    def ranges_now(ask: Inspector) -> Ranges:
        if not append:
            _require_empty(ask, config)
        return ranges_of(ask, config.input_topic, *bounds, now)

    return _answer_to(lambda: pin(config, ranges_now), patience_s)


def _answer_to(question: Callable[[], _Answer], patience_s: float) -> _Answer:
    """Ask again while no broker answers. Raises RecoveryExhausted at the limit, as a worker that cannot connect does."""
    deadline = Deadline(patience_s)
    while True:
        try:
            return question()
        except NoAnswer as error:
            if deadline.over:
                raise RecoveryExhausted(str(error)) from error
            log.warning("%s; asking again", error)
        time.sleep(_ASK_AGAIN_S)


def count_left(config: KafkaConfig) -> int:
    """How many offsets of the range are left."""
    with closing(Inspector(config, stable=True)) as ask:
        pinned = read_pinned(ask, config)
    if pinned is None:
        raise BrokerError(f"the group '{config.group_id}' has lost its offsets, which say what is left to replay")
    return pinned.left


def _replaying(
    live: Settings,
    input_topic: str | None,
    group: str,
    into: str,
    dead_letters: str,
    *,
    force: bool,
) -> Settings:
    """The settings of the live workers with the group and topics of the replay. Raises SettingsError for theirs."""
    if taken := {into, dead_letters}.intersection(live.kafka.inputs):
        raise SettingsError(f"'{min(taken)}' is an input topic: --into and --dead-letters must be other topics")
    kafka = with_one_input(live, input_topic).kafka
    if group == kafka.group_id:
        raise SettingsError(f"--group {group} is the group of the live workers (kafka.group_id): it needs another one")
    if into == dead_letters:
        raise SettingsError("--into and --dead-letters must be different topics")
    if taken := {into, dead_letters} & {kafka.output_topic, kafka.dead_letter_topic}:
        message = f"'{min(taken)}' is a topic of the live workers: their consumers would see records twice"
        if not force:
            raise SettingsError(f"{message}. Name another topic, or add --force if they may")
        log.warning("%s", message)
    chosen = {"group_id": group, "output_topic": into, "dead_letter_topic": dead_letters}
    return live.model_copy(update={"kafka": kafka.model_copy(update=chosen)})


def _require_empty(ask: Inspector, config: KafkaConfig) -> None:
    """Raise SettingsError if a replay that has not begun would write into a topic that has records.

    A group's offsets expire when it has no member for `offsets.retention.minutes`: then the range would be written twice.
    """
    firsts = ask.beginnings(config.output_topic)
    ends = ask.ends(config.output_topic, committed_only=False)
    written = sum(ends[number] - firsts[number] for number in ends)
    # In this order: what another process of the replay writes, it writes after the range is committed.
    if written and not read_pinned(ask, config):
        raise SettingsError(
            f"'{config.output_topic}' is not empty ({written} offsets), and the group '{config.group_id}' has not begun: "
            "records that an earlier replay wrote would be there twice. Name an empty topic, or add --append if they may"
        )


def ranges_of(ask: Inspector, topic: str, start: Bound, end: Bound, now: datetime) -> Ranges:
    """The offsets of each partition of the topic; an empty range for one that is left out.

    Raises BrokerError; SettingsError for a range that is empty, reversed, in the future, or not in the topic.
    """
    require_forward(start, end, now)
    numbers = ask.partitions(topic)
    firsts, ends = ask.beginnings(topic, numbers), ask.ends(topic, numbers, committed_only=False)
    ranges = ranges_between(topic, start, end, firsts, ends, lambda asked, time_s: ask.at_time(topic, asked, time_s))
    return {number: (firsts[number], firsts[number]) for number in numbers} | {**ranges}


@dataclass(frozen=True, slots=True)
class Pinned:
    """The offset that the group has committed, and the one before which the range ends, by partition number."""

    committed: Mapping[int, int]
    until: Mapping[int, int]

    @property
    def left(self) -> int:
        """Offsets that are left to replay; markers of transactions and removed records take some of them."""
        return sum(max(0, end - self.committed[number]) for number, end in self.until.items())


def read_pinned(ask: Inspector, config: KafkaConfig) -> Pinned | None:
    """The range of the group and how far it has come; None if the group has not begun.

    Raises SettingsError if the group reads something else, BrokerError if its topic was created again.
    """
    topic_id = ask.topic_id(config.input_topic)
    committed = {
        tp.partition: (tp.offset, CommitMetadata.decode(tp.metadata))
        for tp in ask.committed_offsets(config.input_topic)
        if tp.offset >= 0
    }
    if not committed:
        return None
    for offset, metadata in committed.values():
        _require_same(config, metadata, offset)
        if not metadata.is_of(topic_id):
            raise BrokerError(
                f"the topic '{config.input_topic}' was deleted and created again since the group '{config.group_id}' began: "
                "its range is gone. Replay the new topic in another --group"
            )
    bounds = {number: metadata.until for number, (_, metadata) in committed.items() if metadata.until is not None}
    return Pinned({number: committed[number][0] for number in bounds}, bounds)


def pin(config: KafkaConfig, ranges_now: Callable[[Inspector], Ranges]) -> Pinned:
    """The range of the group, which is committed now unless it was before. Blocks for some request timeouts at most.

    `ranges_now` chooses it, and may raise. Raises SettingsError and BrokerError as `read_pinned` does.
    """
    complaint = Complaint(config)
    with closing(Inspector(config, complaint, stable=True)) as ask:
        if pinned := read_pinned(ask, config):
            return pinned
        # Asked before the offsets: if they are those of a topic that was made again meanwhile, the commit says so later.
        topic_id = ask.topic_id(config.input_topic)
        ranges, found, troubles = ranges_now(ask), list[Pinned](), list[TransactionTrouble]()

        def try_once() -> bool:
            # Mostly another process of this replay chooses the range at the same time. The broker says so, or that its own
            # error is unknown. The next try begins with what is committed by then.
            try:
                found.append(_commit(config, complaint, ask, topic_id, ranges))
            except TransactionTrouble as trouble:
                log.debug("the range is not committed yet: %s", trouble)
                troubles.append(trouble)
            return bool(found)

        with without_recovery():
            if not until(try_once, Deadline(3 * config.transaction_timeout_s), pause_s=_ASK_AGAIN_S):
                if isinstance(troubles[-1], ProducerFenced):
                    raise BrokerError(
                        f"other processes choose the range of the group '{config.group_id}' again and again"
                    )
                raise troubles[-1]
        return found[0]


def _commit(config: KafkaConfig, complaint: Complaint, ask: Inspector, topic_id: str, ranges: Ranges) -> Pinned:
    """Commit the ranges, unless another process has done so. Raises TransactionTrouble, or ProducerFenced by another one."""
    properties = config.producer() | {"transactional.id": transactional_id(config.group_id, *_LOCK)}
    timeout_s = config.transaction_timeout_s
    with (
        short_lived_producer(properties, complaint, timeout_s, metadata_timeout_s=config.request_timeout_s) as producer,
        closing(lone_consumer(config, complaint, {})) as outsider,
        mapping_errors("committing the range", complaint, producer),
    ):
        if pinned := read_pinned(ask, config):
            return pinned
        offsets = [
            TopicPartition(
                config.input_topic,
                number,
                start,
                metadata=CommitMetadata(topic_id, replay=config.replay, until=end).encode(),
            )
            for number, (start, end) in ranges.items()
        ]
        producer.begin_transaction()
        producer.send_offsets_to_transaction(offsets, outsider.consumer_group_metadata(), timeout_s)
        producer.commit_transaction(timeout_s)
    log.info("the range %s is committed for the group '%s'", config.replay, config.group_id)
    starts, ends = ({number: bounds[side] for number, bounds in ranges.items()} for side in (0, 1))
    return Pinned(starts, ends)


def _require_same(config: KafkaConfig, metadata: CommitMetadata, offset: int) -> None:
    group = config.group_id
    if not metadata.replay:
        raise SettingsError(f"the group '{group}' is no replay: it has committed offset {offset}. Name another --group")
    if metadata.replay != config.replay:
        raise SettingsError(
            f"the group '{group}' replays {metadata.replay}, not {config.replay}. Give the same --from and --to to go on "
            "with it, or name another --group"
        )


@contextmanager
def left_lines(config: KafkaConfig, counters: Counters, every_s: float) -> Iterator[None]:
    """Log every `every_s` seconds how much of the range is left, while the body runs."""
    with closing(Inspector(config)) as ask:

        def report() -> None:
            try:
                pinned = read_pinned(ask, config)
            except BrokerError as error:
                log.warning("cannot find out how much is left: %s", error)
                return
            if pinned:
                log.info("%d published here; at most %d records left", counters.published, pinned.left)

        with repeating(report, every_s):
            yield
