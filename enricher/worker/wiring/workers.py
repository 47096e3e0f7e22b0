"""Settings and a model -> a worker that is ready to run, and its parts that telemetry and health read."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import partial

from enricher.distribution import installed_version
from enricher.worker.inference.device import driver
from enricher.worker.inference.device.hardware import available_cores
from enricher.worker.inference.device.sessions import Device
from enricher.worker.kafka.sink import TransactionalSink
from enricher.worker.kafka.source import KafkaSource
from enricher.worker.loop.intake import Intake
from enricher.worker.loop.isolation import Isolation
from enricher.worker.loop.loop import Worker
from enricher.worker.loop.pacing import Budget, LoopLimits, Pacing
from enricher.worker.loop.pool import WorkerPool
from enricher.worker.loop.ports import Sink, Source, Tokenized, Tracing
from enricher.worker.loop.recovery import Recovery, RecoveryLimits
from enricher.worker.loop.snapshot import SnapshotReader
from enricher.worker.records import Batch, BatchResult, Ticket
from enricher.worker.rules.batching import BatchRules, LengthBucketScheduler
from enricher.worker.rules.dead_letter_limits import DeadLetterLimits, Limits
from enricher.worker.rules.offsets import OffsetTracker
from enricher.worker.rules.packing import ArrivalScheduler
from enricher.worker.runtime.deadlines import Wakeup
from enricher.worker.runtime.watchdog import Guard
from enricher.worker.settings import Settings
from enricher.worker.settings.worker import WINDOW_ARTICLES
from enricher.worker.stats import Counters
from enricher.worker.telemetry.observed import ModelFacts, Observed, WorkerFacts, gpu_meter
from enricher.worker.telemetry.tracing import ContextPropagation
from enricher.worker.wiring.formats import (
    REGISTRY_TIMEOUT_S,
    ReaderOf,
    article_reader,
    encoder_of,
    keep_function,
    line_reader,
    read_function,
    registry_decoders,
    writer_of,
)
from enricher.worker.wiring.kafka_clients import kafka_config
from enricher.worker.wiring.loaded_tasks import Model, Tasks, batch_rules, window_cutter

MAX_DEATHS_AT_OFFSET = 3
"""Processes that may end at one committed offset before the next one takes one article at a time: rollouts and evictions end
one or two there without a fault of an article."""
MAX_RECOVERIES_IN_A_ROW = 10
"""Recoveries without a successful transaction between them, after which the process ends."""
_BACKLOG_BATCHES = 32
"""Full batches whose tokens may wait for the model, so that there are enough windows of similar length."""
PUBLISH_SHARE = 1.0
"""The share of the time that transactions may take at half load, by their measured duration. At low load a finished article
is published at once, with at most two thirds of the time in transactions; near capacity only every `publish_interval_ms`."""
WAITING_BATCHES: dict[Device, int] = {"cpu": 1, "cuda": 2}
"""Batches that wait for each thread of the engine. On a GPU a batch can take 12 ms, less than a turn of the loop with a
transaction."""
WAITING_CALLS: dict[Device, int] = {"cpu": 1, "cuda": 4}
"""Calls that wait for each thread of the tokenizer. A call takes 12 ms, and beside a GPU a thread without one during a
transaction can be the bottleneck. Beside a model on a CPU it is not, and articles would only wait here, not in Kafka."""
CHARS_PER_TOKENIZER_CALL = 32_768
"""The most text for one call of the tokenizer; a longer article has a call for itself."""


def kafka_worker(
    settings: Settings,
    tasks: Tasks,
    *,
    guard: Guard,
    until_caught_up: bool = False,
    tracing: Tracing | None = None,
) -> Worker:
    """A worker between two Kafka topics; it connects when it runs. Raises SettingsError.

    `guard` must work for as long as the worker runs, so the caller starts the watchdog and ends it.
    """
    config, counters = kafka_config(settings), Counters()
    limits = settings.dead_letters
    most = Limits(limits.max_in_a_row, limits.max_ratio, WINDOW_ARTICLES)
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
        partial(article_reader, settings, seconds=counters.transform_s),
        guard,
        counters=counters,
        dead_letters=dead_letters,
        tracing=tracing or ContextPropagation(),
    )
    return _worker(settings, tasks, ends)


def file_worker(settings: Settings, tasks: Tasks, source: Source, sink: Sink, *, guard: Guard) -> Worker:
    """A worker between two files, or values in memory. Raises SettingsError."""
    return local_worker(settings, tasks, source, sink, reader=lambda _: line_reader(settings), guard=guard)


def local_worker(
    settings: Settings, tasks: Tasks, source: Source, sink: Sink, *, reader: ReaderOf, guard: Guard
) -> Worker:
    """A worker between a source and a sink on this machine. Raises SettingsError.

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


def _worker(settings: Settings, tasks: Tasks, ends: _Ends) -> Worker:
    clock, wakeup, tracker = time.monotonic, Wakeup(), OffsetTracker()
    schemas = registry_decoders(settings, wake=wakeup.set)
    model, rules = tasks.model, batch_rules(tasks.settings, tasks.model)
    limits, keep = _loop_limits(settings, rules), keep_function(settings, ends.counters, tasks.catalogue)
    scheduler = (ArrivalScheduler if model.prepared.variant.packs else LengthBucketScheduler)(rules)
    intake = Intake(
        read=read_function(settings, ends.reader(schemas), by_language=tasks.by_language),
        tokenizer=tokenizer_pool(settings, model, wakeup),
        cutter=window_cutter(tasks.settings, model),
        scheduler=scheduler,
        heads=tasks.heads,
        keep=keep,
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
        keep=keep,
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


def _loop_limits(settings: Settings, rules: BatchRules) -> LoopLimits:
    worker = settings.worker
    return LoopLimits(
        max_in_flight=worker.max_in_flight_articles,
        max_in_flight_bytes=worker.max_in_flight_bytes,
        max_articles_per_second=worker.max_articles_per_second,
        max_queued_tokens=_BACKLOG_BATCHES * rules.max_batch_tokens,
        publish_interval_s=worker.publish_interval_ms / 1000,
        publish_share=PUBLISH_SHARE,
        engine_timeout_s=worker.engine_timeout_s,
        stall_timeout_s=worker.stall_timeout_s,
        drain_timeout_s=worker.drain_timeout_s,
        max_deaths_at_offset=MAX_DEATHS_AT_OFFSET,
    )


def _recovery(settings: Settings, ends: _Ends) -> Recovery:
    registry = settings.registry
    # The id of a schema: a request to each URL, with a timeout for connecting and the answer.
    registry_s = 2 * REGISTRY_TIMEOUT_S * len(registry.url.split(",")) if registry.url else 0.0
    limits = RecoveryLimits(
        timeout_s=settings.worker.recovery_timeout_s,
        # The schema of records, a new producer's metadata and init_transactions, then the committed offsets.
        attempt_timeout_s=registry_s + 3 * settings.kafka.transaction_timeout_s + 6 * settings.kafka.request_timeout_s,
        max_in_a_row=MAX_RECOVERIES_IN_A_ROW,
        missing_topic_s=settings.kafka.request_timeout_s,
    )
    return Recovery(ends.source, ends.sink, limits, clock=time.monotonic, guard=ends.guard)


def engine_pool(model: Model, wakeup: Wakeup) -> WorkerPool[Batch, BatchResult]:
    """The threads that run batches on the model. Batches wait for each thread, so that it has one during a transaction."""
    return WorkerPool(
        model.engine.run,
        threads=model.concurrency,
        waiting=model.concurrency * WAITING_BATCHES[model.prepared.device],
        wake=wakeup.set,
        name="engine",
        begin=model.engine.open_thread,
    )


def tokenizer_pool(settings: Settings, model: Model, wakeup: Wakeup) -> WorkerPool[list[Ticket], Tokenized]:
    """The threads that tokenise the articles of tickets."""

    def tokenize(tickets: list[Ticket]) -> Tokenized:
        articles = [ticket.article for ticket in tickets if ticket.article is not None]
        return [*zip(tickets, model.tokenizer.tokenize(articles), strict=True)]

    device = model.prepared.device
    cores = available_cores() if device == "cuda" else available_cores() // 2
    threads = settings.worker.tokenizer_threads or max(1, min(4, cores))
    waiting = threads * WAITING_CALLS[device]
    return WorkerPool(tokenize, threads=threads, waiting=waiting, wake=wakeup.set, name="tokenizer")


def worker_facts(settings: Settings) -> WorkerFacts:
    """The identity of the worker that these settings describe."""
    kafka = settings.kafka
    return WorkerFacts(
        instance=kafka.instance,
        group=kafka.group_id,
        input_topic=", ".join(kafka.inputs),
        output_topic=kafka.output_topic,
        dead_letter_topic=kafka.dead_letter_topic,
        version=installed_version(),
    )


def observe(settings: Settings, tasks: Tasks, worker: Worker) -> Observed:
    """The parts of a worker between two Kafka topics that telemetry and health read."""
    model, card = tasks.model, tasks.card
    device = model.prepared.device
    gpu = driver.gpu(model.prepared.device_id) if device == "cuda" else None
    return Observed(
        worker=worker_facts(settings),
        model=ModelFacts(card.name, card.digest, card.precision, model.engine.provider, device),
        counters=worker.counters,
        snapshot=worker.snapshots.read,
        gpus=gpu_meter(gpu.pci_bus_id, gpu.uuid) if gpu else tuple,
    )
