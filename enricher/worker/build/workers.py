"""Settings and a model -> a worker that is ready to run."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

from enricher.distribution import installed_version
from enricher.worker.articles import ArticleReader, Encoder, EventHeaders, RecordWriter, default_source, without_repeats
from enricher.worker.articles.schemas import Decoders
from enricher.worker.build.article_readers import article_reader, line_reader
from enricher.worker.build.kafka_clients import kafka_config
from enricher.worker.build.loaded_model import batch_rules, window_cutter
from enricher.worker.build.loaded_tasks import Tasks
from enricher.worker.build.pools import engine_pool, tokenizer_pool
from enricher.worker.build.record_writer import writer_of
from enricher.worker.build.schema_registry import registry_decoders
from enricher.worker.kafka.sink import TransactionalSink
from enricher.worker.kafka.source import KafkaSource
from enricher.worker.loop.budget import Budget
from enricher.worker.loop.intake import Intake
from enricher.worker.loop.isolation import Isolation
from enricher.worker.loop.loop import Worker
from enricher.worker.loop.pacing import LoopLimits, Pacing
from enricher.worker.loop.ports import Sink, Source, Tracing
from enricher.worker.loop.recovery import Recovery, RecoveryLimits
from enricher.worker.loop.snapshot import SnapshotReader
from enricher.worker.records import Article, RawRecord, Tombstone, Versioning
from enricher.worker.rules.batch_rules import BatchRules
from enricher.worker.rules.batching import LengthBucketScheduler
from enricher.worker.rules.dead_letter_limits import DeadLetterLimits, Limits
from enricher.worker.rules.offsets import OffsetTracker
from enricher.worker.rules.packing import ArrivalScheduler
from enricher.worker.runtime.wakeup import Wakeup
from enricher.worker.runtime.watchdog import Guard
from enricher.worker.settings import Settings
from enricher.worker.stats.counters import Counters
from enricher.worker.telemetry.tracing import ContextPropagation

Read = Callable[[RawRecord], Article | Tombstone]
MAX_DEATHS_AT_OFFSET = 3
"""Processes that may end at one committed offset before the next one takes one article at a time: rollouts and evictions end
one or two there without a fault of an article."""
MAX_RECOVERIES_IN_A_ROW = 10
"""Recoveries without a successful transaction between them, after which the process ends."""
_BACKLOG_BATCHES = 32
"""Full batches whose tokens may wait for the model, so that there are enough windows of similar length."""
CHARS_PER_TOKENIZER_CALL = 32_768
"""Text of one call of the tokenizer; a longer article has a call for itself."""
ReaderOf = Callable[[Decoders | None], ArticleReader]
"""The reader of articles, given the decoders of values that name a schema."""


def kafka_worker(
    settings: Settings,
    tasks: Tasks,
    *,
    guard: Guard,
    until_caught_up: bool = False,
    replay: str = "",
    tracing: Tracing | None = None,
) -> Worker:
    """A worker between two Kafka topics; it connects when it runs. Raises SettingsError.

    `replay`: the name of the range that the group replays.
    `guard` must work for as long as the worker runs, so the caller starts the watchdog and ends it.
    """
    config, counters = replace(kafka_config(settings), replay=replay), Counters()
    limits = settings.dead_letters
    most = Limits(limits.max_in_a_row, limits.max_ratio, limits.window_articles)
    dead_letters = DeadLetterLimits(most, config.group_id)
    source = KafkaSource(config, until_caught_up=until_caught_up)
    writer, prepare = writer_of(settings)
    encoder = encoder_of(settings, writer)
    sink = TransactionalSink(
        config,
        encoder,
        source=source,
        guard=guard,
        counters=counters,
        dead_letters=dead_letters,
        prepare=prepare,
    )
    ends = _Ends(
        source,
        sink,
        partial(article_reader, settings),
        guard,
        counters=counters,
        dead_letters=dead_letters,
        tracing=tracing or ContextPropagation(),
    )
    return _worker(settings, tasks, ends)


def file_worker(settings: Settings, tasks: Tasks, source: Source, sink: Sink, *, guard: Guard) -> Worker:
    """The same worker between two files, or values in memory. Raises SettingsError."""
    return local_worker(settings, tasks, source, sink, reader=lambda _: line_reader(settings), guard=guard)


def local_worker(
    settings: Settings, tasks: Tasks, source: Source, sink: Sink, *, reader: ReaderOf, guard: Guard
) -> Worker:
    """The same worker between a source and a sink of this machine. Raises SettingsError.

    It has no limits of dead letters: a finite input can be read again.
    """
    return _worker(settings, tasks, _Ends(source, sink, reader, guard))


@dataclass(frozen=True, slots=True)
class _Ends:
    """The ends of a worker: topics, files or values in memory. The defaults fit the latter two."""

    source: Source
    sink: Sink
    reader: ReaderOf
    guard: Guard
    counters: Counters = field(default_factory=Counters)
    dead_letters: DeadLetterLimits = field(default_factory=lambda: DeadLetterLimits(Limits()))
    tracing: Tracing = field(default_factory=ContextPropagation)


def encoder_of(settings: Settings, writer: RecordWriter) -> Encoder:
    """The maker of the bytes of outputs and dead letters. Raises SettingsError."""
    output = settings.output
    source = output.cloudevents_source or default_source(settings.kafka.group_id)
    return Encoder(
        version=installed_version(),
        max_record_bytes=settings.articles.max_record_bytes,
        max_dead_letter_bytes=settings.articles.max_dead_letter_bytes,
        clock=time.time,
        writer=writer,
        versioning=versioning_of(settings),
        events=EventHeaders(source) if output.cloudevents else None,
    )


def _worker(settings: Settings, tasks: Tasks, ends: _Ends) -> Worker:
    clock, wakeup, tracker = time.monotonic, Wakeup(), OffsetTracker()
    schemas = registry_decoders(settings, wake=wakeup.set)
    model, rules = tasks.model, batch_rules(tasks.settings, tasks.model)
    limits = _loop_limits(settings, rules)
    scheduler = (ArrivalScheduler if model.prepared.variant.packs else LengthBucketScheduler)(rules)
    intake = Intake(
        read=read_function(settings, ends.reader(schemas), by_language=tasks.by_language),
        tokenizer=tokenizer_pool(settings, model, wakeup),
        cutter=window_cutter(tasks.settings, model),
        scheduler=scheduler,
        heads=tasks.heads,
        chars_per_call=CHARS_PER_TOKENIZER_CALL,
        clock=clock,
        schemas=schemas,
    )
    engine = engine_pool(model, wakeup)
    ends.counters.name_tasks([card.name for card in tasks.cards if card.named])
    pacing = Pacing(ends.source, intake, scheduler, engine, tracker, limits, clock)
    return Worker(
        source=ends.source,
        sink=ends.sink,
        tracker=tracker,
        intake=intake,
        scheduler=scheduler,
        engine=engine,
        heads=tasks.heads,
        padded_tokens=model.engine.padded_tokens,
        budget=Budget(scheduler),
        pacing=pacing,
        isolation=Isolation(ends.source, ends.sink, pacing, ends.counters),
        dead_letters=ends.dead_letters,
        recovery=_recovery(settings, ends),
        snapshots=SnapshotReader(ends.source, scheduler, engine, tracker, clock, intake, pacing, clock()),
        counters=ends.counters,
        tracing=ends.tracing,
        clock=clock,
        wakeup=wakeup,
        guard=ends.guard,
        limits=limits,
    )


def read_function(settings: Settings, reader: ArticleReader, *, by_language: bool) -> Read:
    """The function that reads articles, without the parts that records do not repeat.

    `by_language`: it also sets the language of each article, as `Tasks.by_language` asks.
    """
    output, versioning = settings.output, versioning_of(settings)
    if output.article != "none" and not output.version and not by_language:
        return reader.read

    def read(raw: RawRecord) -> Article | Tombstone:
        article = reader.read(raw)
        if isinstance(article, Tombstone):
            return article
        if by_language:
            article = replace(article, language=article.metadata.get("language"))
        if output.version:
            article = replace(article, version=versioning.version_of(raw))
        return without_repeats(article) if output.article == "none" else article

    return read


def versioning_of(settings: Settings) -> Versioning:
    """The versioning of outputs, by the numbers in the settings."""
    return Versioning(settings.kafka.epoch, settings.model.generation)


def _loop_limits(settings: Settings, rules: BatchRules) -> LoopLimits:
    worker = settings.worker
    return LoopLimits(
        max_in_flight=worker.max_in_flight_articles,
        max_in_flight_bytes=worker.max_in_flight_bytes,
        max_articles_per_second=worker.max_articles_per_second,
        max_queued_tokens=_BACKLOG_BATCHES * rules.max_batch_tokens,
        publish_interval_s=worker.publish_interval_ms / 1000,
        publish_share=worker.publish_share,
        engine_timeout_s=worker.engine_timeout_s,
        stall_timeout_s=worker.stall_timeout_s,
        drain_timeout_s=worker.drain_timeout_s,
        max_deaths_at_offset=MAX_DEATHS_AT_OFFSET,
    )


def _recovery(settings: Settings, ends: _Ends) -> Recovery:
    registry = settings.registry
    # The id of a schema: a request to each URL, with a timeout for connecting and the answer.
    registry_s = 2 * registry.timeout_s * len(registry.url.split(",")) if registry.url else 0.0
    limits = RecoveryLimits(
        timeout_s=settings.worker.recovery_timeout_s,
        # The schema of records, a new producer's metadata and init_transactions, then the committed offsets.
        attempt_timeout_s=registry_s + 3 * settings.kafka.transaction_timeout_s + 6 * settings.kafka.request_timeout_s,
        max_in_a_row=MAX_RECOVERIES_IN_A_ROW,
        missing_topic_s=settings.kafka.request_timeout_s,
    )
    return Recovery(ends.source, ends.sink, limits, clock=time.monotonic, guard=ends.guard)
