"""`enricher replay` enriches the input topic again, into other topics, in its own consumer group.

It is `run --until-caught-up` with the live workers' settings, but for group and output topics, which must not be
theirs: their consumers would read records twice, or find none. The worker decides where the group begins
(`kafka/starts.py`), unless `enricher offsets set` has set it before.
"""

from __future__ import annotations

import logging
from typing import Annotated

import typer

from enricher.errors import SettingsError
from enricher.worker.commands.run import RunOptions, load_and_log_settings, work
from enricher.worker.commands.running import interrupt_code, stopped_by_signals
from enricher.worker.commands.topic_options import InputOption, with_one_input
from enricher.worker.runtime.watchdog import ProcessTimer, Watchdog
from enricher.worker.settings import Settings

log = logging.getLogger(__name__)

_REPORT_EVERY_S = 10.0


def replay(
    context: typer.Context,
    *,
    into: Annotated[str, typer.Option("--into", metavar="TOPIC", help="Topic for the enriched records.")],
    group: Annotated[
        str, typer.Option("--group", help="Consumer group of this replay: the same in all its processes.")
    ],
    dead_letters: Annotated[
        str | None, typer.Option("--dead-letters", metavar="TOPIC", help="Default: INTO.dead-letters.")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Allow the topics of the live workers in --into and --dead-letters.")
    ] = False,
    input_topic: InputOption = None,
) -> None:
    """Enrich the input topic again, into another topic, exactly once.

    It reads from the beginning, or from where `enricher offsets set GROUP TOPIC --at TIME` has set its group, to the end of
    the topic when the process starts. It needs two topics, INTO and its dead letters, with as many partitions as the input:
    `enricher topics create` makes them if the settings name them as output and dead-letter topic.

    Model and everything else are set as for `run`. Start it as often as you like, with another kafka.instance each: the
    processes share the topic as one consumer group, and a process that is started again goes on where the group is.

    Exit codes: 0 if it has caught up, 130 after Ctrl-C and 143 after SIGTERM, else those of `run`.
    """
    watchdog = Watchdog(timer=context.find_object(ProcessTimer))
    live = load_and_log_settings()
    settings = _replaying(live, input_topic, group, into, dead_letters or f"{into}.dead-letters", force=force)
    log.info("replaying '%s' into '%s'", settings.kafka.input_topic, into)
    with stopped_by_signals(interrupt_code) as signals:
        work(
            settings, RunOptions(until_caught_up=True, summary=None, report_every_s=_REPORT_EVERY_S), signals, watchdog
        )
        if signals.received:
            log.info("stopped; start it again to go on")
            raise typer.Exit(interrupt_code(signals.received))
    log.info("'%s' has what is in '%s', up to where it ended at the start", into, settings.kafka.input_topic)


def _replaying(
    live: Settings, input_topic: str | None, group: str, into: str, dead_letters: str, *, force: bool
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
