"""The command `dead-letters redrive`: options, progress, the last line. `redriving` does it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from enum import StrEnum
from functools import partial
from typing import Annotated

import orjson
import typer

from enricher.operate.dead_letters.letters import Selection
from enricher.operate.dead_letters.redriving import MOST_RECORDS, Ending, Readers, Redrive, RedriveOptions
from enricher.operate.dead_letters.sender import Sender
from enricher.operate.inspect.follow import RecordFinder
from enricher.operate.inspect.inspector import Inspector
from enricher.operate.publish import MAX_RATE, TokenBucket
from enricher.worker.commands.console import Ticker, data_console, remark_console, write_line
from enricher.worker.commands.topic_options import TIME_FORMS, InputOption, time_option, with_one_input
from enricher.worker.kafka.errors import without_recovery
from enricher.worker.kafka.properties import KafkaConfig
from enricher.worker.kafka.ranges import RangeReader
from enricher.worker.runtime.watchdog import Watchdog
from enricher.worker.settings import Settings, load_settings
from enricher.worker.wiring.kafka_clients import kafka_config

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
_ALWAYS_NAMED: set[Ending] = {"superseded", "loop_guard", "not_available", "not_selected"}


class Stage(StrEnum):
    """The stages at which articles fail. Typer takes lists of an enum, and of no `Literal`."""

    DECODE = "decode"
    TOKENIZE = "tokenize"
    INFERENCE = "inference"
    PUBLISH = "publish"


def dead_letters_redrive(  # noqa: PLR0913  each option is an argument
    *,
    stage: Annotated[
        list[Stage] | None, typer.Option(show_default=False, help="Only those of this stage; may be repeated.")
    ] = None,
    error_type: Annotated[
        list[str] | None, typer.Option("--type", show_default=False, help="Only those of this type; may be repeated.")
    ] = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help=f"Only those made at this time or later: {TIME_FORMS}.")
    ] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="Only those made before this time.")] = None,
    rate: Annotated[float | None, typer.Option(min=0.01, max=MAX_RATE, help="Send so many per second at most.")] = None,
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
        selection=Selection.of(stage or (), error_type or (), *times),
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
    # What one run commits would hide the letters of other topics.
    of_topic = f".{config.input_topic}" if len(live.kafka.inputs) > 1 else ""
    return config, f"{config.group_id}.redrive{of_topic}"


def _counts_of(redrive: Redrive) -> dict[str, int]:
    """How the letters ended that no earlier run had settled."""
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
    """A run of this group with its clients, which are closed at the end."""
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
        self._bucket = TokenBucket(rate_per_s)
        self._ticker = ticker

    def __call__(self, count: int) -> None:
        for _ in range(count):
            while (wait_s := self._bucket.wait_s()) > 0:
                self._ticker.tick(lambda: "waiting for the next transaction (--rate)")
                time.sleep(min(wait_s, 0.5))
            self._bucket.take()
