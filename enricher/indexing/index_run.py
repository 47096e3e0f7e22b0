"""`enricher index run`: makes a running indexer from the settings."""

from __future__ import annotations

import logging
from contextlib import ExitStack, closing
from dataclasses import replace
from typing import Annotated

import typer

from enricher.distribution import installed_version
from enricher.errors import SettingsError
from enricher.indexing.index_health import IndexCounts, IndexHealth, ObservedIndexer
from enricher.indexing.indexer import Indexer
from enricher.indexing.output_reader import OutputReader
from enricher.indexing.refused_records import RefusedRecords
from enricher.indexing.search_clients import open_index
from enricher.worker.commands.run import AROUND_S, load_and_log_settings, serve_health
from enricher.worker.commands.running import Signals, repeating, stopped_by_signals
from enricher.worker.health.routes import probe_routes
from enricher.worker.kafka.precheck import check_start
from enricher.worker.kafka.properties import KafkaConfig
from enricher.worker.kafka.tokens import wait_for_token
from enricher.worker.runtime.watchdog import START_TIMEOUT_S, ProcessTimer, Watchdog
from enricher.worker.settings import Settings
from enricher.worker.telemetry.observed import WorkerFacts
from enricher.worker.wiring.kafka_clients import kafka_config

log = logging.getLogger("enricher.index")

_REPORT_EVERY_S = 10.0


def index_run(
    context: typer.Context,
    *,
    until_caught_up: Annotated[
        bool,
        typer.Option(
            "--until-caught-up", help="End once everything that was in the output topic at the start is indexed."
        ),
    ] = False,
) -> None:
    """Write the output topic into a search index, so that the index has the newest version of every document.

    Runs until SIGTERM. Any number of indexers share the partitions of the output topic as one consumer group
    (`index.group_id`). Offsets are committed after the index has answered; a record that comes again, or late, is refused by
    its version. Tombstones delete. A record that the index can never take, such as one with a value that does not fit the
    mapping, goes to `index.dead_letter_topic` with the reason, and all others are written.

    Exit code: 2 for settings, also if the input topic was made again under the same kafka.epoch; 4 if broker or index
    refuse us, 6 if one of them does not come back, 7 if the process hangs, 12 after too many dead letters in a row. It needs
    READ on the output topic and on its group, and WRITE on its dead-letter topic.
    """
    watchdog = Watchdog(timer=context.find_object(ProcessTimer))
    settings = load_and_log_settings()
    with stopped_by_signals() as signals:
        _work(settings, signals, watchdog, until_caught_up=until_caught_up)


def index_config(settings: Settings) -> KafkaConfig:
    """The clients' settings: the indexers' group reads the output topic and writes only dead letters.

    Reads secrets from files; raises SettingsError.
    """
    if len(settings.kafka.inputs) > 1:
        raise SettingsError(
            "kafka.input_topics names several topics, and versions are comparable only within one: if a key is in two of "
            "them, the index might keep the older article. Give each input topic its own workers, output topic and index "
            "(index.name), and search these by one alias"
        )
    config = kafka_config(settings)
    letters = settings.index.dead_letters_of(config.output_topic)
    return replace(
        config,
        group_id=settings.index.group_id or f"{config.group_id}.index",
        input_topic=config.output_topic,
        output_topic=letters,
        dead_letter_topic=letters,
    )


def _work(settings: Settings, signals: Signals, watchdog: Watchdog, *, until_caught_up: bool) -> None:
    config = index_config(settings)
    facts = WorkerFacts(
        instance=config.instance,
        group=config.group_id,
        input_topic=config.input_topic,
        output_topic=settings.index.name,
        dead_letter_topic=config.dead_letter_topic,
        version=installed_version(),
    )
    health = IndexHealth(facts)
    limit_s = settings.worker.recovery_timeout_s
    with (
        watchdog,
        watchdog.guard("opening or closing health and telemetry", AROUND_S),
        serve_health(health.pages(), probe_routes(health), settings.health),
        ExitStack() as stack,
    ):
        with watchdog.guard("starting", 2 * settings.index.give_up_s + START_TIMEOUT_S):
            wait_for_token(config.login, limit_s)
            check_start(config, by_key=True)
            health.note_step("connecting with the search index")
            index = stack.enter_context(closing(open_index(settings.index)))
        health.note_step("connecting with the brokers")
        letters = RefusedRecords(config, config.dead_letter_topic, index.name, give_up_s=limit_s)
        stack.enter_context(closing(letters))
        limit = settings.dead_letters.max_in_a_row
        most_row = limit - max(1, limit // 20) if limit else 0  # a repaired indexer gets over a few bad records
        reader = OutputReader(config, give_up_s=limit_s, most_row=most_row, until_caught_up=until_caught_up)
        indexer = Indexer(settings, index, reader, letters, watchdog.guard)
        seen = ObservedIndexer(facts, indexer.counts, indexer.snapshot)

        def show_health() -> None:
            health.show(seen, watchdog.call_in_progress)
            stack.enter_context(repeating(lambda: log.info("%s", describe(indexer.counts)), _REPORT_EVERY_S))

        signals.stop = indexer.stop
        indexer.run(show_health)
        log.info("done: %s", describe(indexer.counts))


def describe(counts: IndexCounts) -> str:
    """The counts in one line."""
    done, seconds = counts.outcomes, counts.working_s
    return (
        f"{counts.read} read in {seconds:.1f} s, {counts.read / max(seconds, 1e-9):.1f}/s: {done['written']} written, "
        f"{done['deleted']} deleted, {done['older']} older than the index, {done['dead_letter']} dead letters; "
        f"{counts.bulk_s.count} bulk requests, {counts.retries.total()} documents sent again"
    )
