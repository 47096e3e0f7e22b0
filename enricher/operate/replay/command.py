"""`enricher replay`: a bounded range of the input topic through the same worker, in a group of its own."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from enricher.errors import BrokerError, NoAnswer, RecoveryExhausted, SettingsError
from enricher.operate.inspect.inspector import Inspector
from enricher.operate.publish.token_bucket import MAX_RATE
from enricher.operate.replay.pinning import Pinned, pin, read_pinned
from enricher.operate.replay.progress import left_lines
from enricher.operate.replay.topic_ranges import ranges_of
from enricher.worker.build.kafka_clients import kafka_config
from enricher.worker.commands.bounds import FORMS, Bound, range_name
from enricher.worker.commands.one_input import InputOption, with_one_input
from enricher.worker.commands.run.command import load_and_log_settings, require_writable
from enricher.worker.commands.run.parent import RunOptions
from enricher.worker.commands.run.work import work
from enricher.worker.commands.signals import interrupt_code, stopped_by_signals
from enricher.worker.kafka.shared.client import KafkaConfig
from enricher.worker.kafka.shared.partition_reader import Ranges
from enricher.worker.kafka.shared.precheck import check_start
from enricher.worker.runtime.deadlines import Deadline
from enricher.worker.runtime.watchdog import ProcessTimer, Watchdog
from enricher.worker.settings import Settings

log = logging.getLogger(__name__)

_ASK_AGAIN_S = 0.5
_Answer = TypeVar("_Answer")
_RATE = "Articles per second of this process. Default: worker.max_articles_per_second."
_Rate = Annotated[float | None, typer.Option(min=0.001, max=MAX_RATE, metavar="N", help=_RATE)]


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
    rate: _Rate = None,
    append: Annotated[
        bool, typer.Option("--append", help="Begin although INTO has records: of another replay, for example.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Allow the topics of the live workers in --into and --dead-letters.")
    ] = False,
    input_topic: InputOption = None,
    summary: Annotated[Path | None, typer.Option(help="Write the counts as JSON to this file at the end.")] = None,
    report_every_s: Annotated[
        float, typer.Option(min=0.1, max=86_400, help="Seconds between two progress lines in the log.")
    ] = 10.0,
) -> None:
    """Enrich a range of the input topic again, into another topic, exactly once.

    Model and everything else are set as for `run`. Start it as often as you like, with another kafka.instance each: the
    processes share the range as one consumer group, and a process that is started again goes on. The range is chosen once,
    when the first process begins: `end` is the end of the topic then. All of them end when the range is done.

    In a file, offsets are given by partition, and partitions that it does not name are left out: {"0": 1200, "1": 980}.
    Times are those of Kafka's records: the range begins at the first record of each partition with this time or a later one.

    Exit codes: 0 if the range is done, 130 after Ctrl-C and 143 after SIGTERM if it is not, else those of `run`.
    """
    bounds = Bound.parse("--from", start), Bound.parse("--to", end)
    watchdog = Watchdog(timer=context.find_object(ProcessTimer))
    require_writable(summary)
    live = load_and_log_settings()
    settings = _replaying(live, input_topic, group, into, dead_letters or f"{into}.dead-letters", rate, force=force)
    config = replace(kafka_config(settings), replay=range_name(*bounds))
    with stopped_by_signals(interrupt_code) as signals:
        check_start(config)
        pinned = _pin(config, bounds, live.worker.recovery_timeout_s, append=append)
        log.info("replaying %s of '%s' into '%s'", config.replay, config.input_topic, into)
        if pinned.left:
            options = RunOptions(until_caught_up=True, summary=summary, report_every_s=report_every_s)
            work(settings, options, signals, watchdog, replay=config.replay, progress=partial(left_lines, config))
        if left := _answer_to(lambda: count_left(config), live.worker.recovery_timeout_s):
            log.info("stopped: %d offsets of the range are left; start it again to go on", left)
            raise typer.Exit(interrupt_code(signals.received or 0))
    log.info("the range is replayed: %s of '%s' is in '%s'", config.replay, config.input_topic, config.output_topic)


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
    rate: float | None,
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
    limits = {} if rate is None else {"max_articles_per_second": rate}
    return live.model_copy(
        update={"kafka": kafka.model_copy(update=chosen), "worker": live.worker.model_copy(update=limits)}
    )


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
