"""Settings and a model -> a worker that is ready to run."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from importlib.metadata import version

from enricher.app.kafka import kafka_config
from enricher.app.model import Model, batch_rules, window_cutter
from enricher.app.reading import article_reader, line_reader
from enricher.app.record_schema import writer_of
from enricher.app.registry import registry_decoders
from enricher.codec import ArticleReader, Encoder, EventHeaders, RecordWriter, bare, default_source
from enricher.codec.schemas import Decoders
from enricher.core.batch_rules import BatchRules
from enricher.core.batching import LengthBucketScheduler
from enricher.core.decoding import LabelScheme
from enricher.core.packing import ArrivalScheduler
from enricher.files import LineSink, LineSource
from enricher.inference.device.cores import available_cores
from enricher.inference.tokenizer.articles import ArticleTokenizer
from enricher.kafka.rivals import LOOK_S, Rivals
from enricher.kafka.sink import TransactionalSink
from enricher.kafka.source import KafkaSource
from enricher.records import Article, Batch, BatchResult, ModelCard, RawRecord, Ticket
from enricher.runtime.wakeup import Wakeup
from enricher.runtime.watchdog import Guard
from enricher.settings import Settings
from enricher.stats.counters import Counters
from enricher.telemetry.tracing import PassingOn
from enricher.worker.dependencies import Dependencies
from enricher.worker.intake import Intake
from enricher.worker.loop import Worker
from enricher.worker.pacing import LoopLimits
from enricher.worker.pool import WorkerPool
from enricher.worker.ports import Sink, Source, Tokenized, Tracing
from enricher.worker.recovery import Recovery, RecoveryLimits

ReaderOf = Callable[[Decoders | None], ArticleReader]
"""The reader of articles, given the decoders of values that name a schema."""


def kafka_worker(
    settings: Settings,
    model: Model,
    *,
    guard: Guard,
    until_caught_up: bool = False,
    tracing: Tracing | None = None,
) -> Worker:
    """A worker between two Kafka topics; it connects when it runs. Raises SettingsError.

    `guard` must work for as long as the worker runs, so the caller starts the watchdog and ends it.
    """
    config, counters = kafka_config(settings), Counters()
    source = KafkaSource(config, until_caught_up=until_caught_up)
    rivals = Rivals(config, source.member_id, source.member_ids)
    writer, prepare = writer_of(settings)
    encoder = _encoder(settings, model.card, writer)
    sink = TransactionalSink(config, encoder, source=source, guard=guard, counters=counters, prepare=prepare)
    recovery = _recovery(settings, source, sink, guard, rivals)
    passing_on, reader = tracing or PassingOn(), partial(article_reader, settings)
    return _worker(settings, model, source, sink, recovery, guard, counters, passing_on, reader=reader)


def file_worker(settings: Settings, model: Model, source: LineSource, sink: LineSink, *, guard: Guard) -> Worker:
    """The same worker between two files. Raises SettingsError."""
    return local_worker(settings, model, source, sink, reader=lambda _: line_reader(settings), guard=guard)


def local_worker(
    settings: Settings, model: Model, source: Source, sink: Sink, *, reader: ReaderOf, guard: Guard
) -> Worker:
    """The same worker between a source and a sink of this machine. Raises SettingsError."""
    recovery = _recovery(settings, source, sink, guard)
    return _worker(settings, model, source, sink, recovery, guard, Counters(), PassingOn(), reader=reader)


def _encoder(settings: Settings, card: ModelCard, writer: RecordWriter) -> Encoder:
    output = settings.output
    source = output.cloudevents_source or default_source(settings.kafka.group_id)
    return Encoder(
        card,
        version=version("enricher"),
        max_record_bytes=settings.articles.max_record_bytes,
        max_dead_letter_bytes=settings.articles.max_dead_letter_bytes,
        clock=time.time,
        writer=writer,
        events=EventHeaders(source) if output.cloudevents else None,
    )


def _worker(  # noqa: PLR0913  what differs between topics, files and records in memory
    settings: Settings,
    model: Model,
    source: Source,
    sink: Sink,
    recovery: Recovery,
    guard: Guard,
    counters: Counters,
    tracing: Tracing,
    *,
    reader: ReaderOf,
) -> Worker:
    wakeup = Wakeup()
    schemas = registry_decoders(settings, wake=wakeup.set)
    rules = batch_rules(settings, model)
    scheduler = (ArrivalScheduler if model.prepared.variant.packs else LengthBucketScheduler)(rules)
    scheme = LabelScheme.from_labels(model.engine.labels)
    intake = Intake(
        read=_read(settings, reader(schemas)),
        tokenizer=_tokenizer_pool(settings, model.tokenizer, wakeup),
        cutter=window_cutter(settings, model),
        scheduler=scheduler,
        scheme=scheme,
        chars_per_call=settings.worker.chars_per_tokenizer_call,
        schemas=schemas,
    )
    dependencies = Dependencies(
        source=source,
        sink=sink,
        intake=intake,
        scheduler=scheduler,
        engine=_engine_pool(model, wakeup),
        padded_tokens=model.engine.padded_tokens,
        scheme=scheme,
        recovery=recovery,
        tracing=tracing,
        counters=counters,
        clock=time.monotonic,
        wakeup=wakeup,
        guard=guard,
    )
    return Worker(dependencies, _limits(settings, rules))


def _read(settings: Settings, reader: ArticleReader) -> Callable[[RawRecord], Article]:
    """Reads articles, and keeps of each what its record is to repeat."""
    if settings.output.article == "none":
        return lambda raw: bare(reader.read(raw))
    return reader.read


def _engine_pool(model: Model, wakeup: Wakeup) -> WorkerPool[Batch, BatchResult]:
    engine, count = model.engine, model.concurrency
    # One waiting batch per thread: while the loop is in a transaction, every thread has a next batch.
    return WorkerPool(
        engine.run, threads=count, waiting=count, wake=wakeup.set, name="engine", begin=engine.open_thread
    )


def _tokenizer_pool(
    settings: Settings, tokenizer: ArticleTokenizer, wakeup: Wakeup
) -> WorkerPool[list[Ticket], Tokenized]:
    def tokenize(tickets: list[Ticket]) -> Tokenized:
        articles = [ticket.article for ticket in tickets if ticket.article is not None]
        return list(zip(tickets, tokenizer.tokenize(articles), strict=True))

    threads = settings.worker.tokenizer_threads or max(1, min(4, available_cores() // 2))
    return WorkerPool(tokenize, threads=threads, waiting=threads, wake=wakeup.set, name="tokenizer")


def _limits(settings: Settings, rules: BatchRules) -> LoopLimits:
    worker = settings.worker
    return LoopLimits(
        max_in_flight=worker.max_in_flight_articles,
        max_in_flight_bytes=worker.max_in_flight_bytes,
        max_queued_tokens=worker.backlog_batches * rules.max_batch_tokens,
        publish_interval_s=worker.publish_interval_ms / 1000,
        publish_share=worker.publish_share,
        poll_interval_s=worker.poll_interval_ms / 1000,
        idle_wait_s=worker.idle_wait_ms / 1000,
        pause_after_s=worker.pause_after_s,
        engine_timeout_s=worker.engine_timeout_s,
        stall_timeout_s=worker.stall_timeout_s,
        drain_timeout_s=worker.drain_timeout_s,
        max_deaths_at_offset=worker.max_deaths_at_offset,
    )


def _recovery(settings: Settings, source: Source, sink: Sink, guard: Guard, rivals: Rivals | None = None) -> Recovery:
    limits = RecoveryLimits(
        timeout_s=settings.worker.recovery_timeout_s,
        # The schema of records, looking for rivals, a new producer's metadata and init_transactions, then the committed
        # offsets.
        attempt_timeout_s=_registry_s(settings)
        + LOOK_S
        + 3 * settings.kafka.transaction_timeout_s
        + 6 * settings.kafka.request_timeout_s,
        max_in_a_row=settings.worker.max_recoveries_in_a_row,
        missing_topic_s=settings.kafka.request_timeout_s,
    )
    return Recovery(source, sink, limits, clock=time.monotonic, guard=guard, rivals=rivals)


def _registry_s(settings: Settings) -> float:
    """How long the registry may take to tell the id of a schema, and to register one: a request to each URL for both."""
    registry = settings.registry
    return 2 * registry.timeout_s * len(registry.url.split(",")) if registry.url else 0.0
