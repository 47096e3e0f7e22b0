"""The composition root: settings -> a worker that is ready to run. Nothing is decided here but what goes where."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass
from importlib.metadata import version

from enricher.codec import Encoder, decode_article
from enricher.core.batching import BatchRules, LengthBucketScheduler
from enricher.core.decoding import LabelScheme
from enricher.core.packing import ArrivalScheduler
from enricher.core.windowing import WindowCutter
from enricher.crashing import Parts, parts
from enricher.errors import SettingsError
from enricher.files import LineSink, LineSource
from enricher.inference.advice import Advice, advice_for
from enricher.inference.device import available_cores, default_lanes
from enricher.inference.engine import OnnxEngine
from enricher.inference.lanes import Lanes
from enricher.inference.model import PreparedModel, prepare
from enricher.inference.selection import report_folders
from enricher.inference.tokenizer import ArticleTokenizer
from enricher.inference.tuning import tuning_for
from enricher.intake import Intake
from enricher.kafka.client import KafkaConfig
from enricher.kafka.sink import TransactionalSink
from enricher.pacing import Limits
from enricher.ports import Sink, Source, Tokenized
from enricher.records import InFlight, ModelCard
from enricher.recovery import Recovery, RecoveryLimits
from enricher.settings import BatchingSettings, Settings
from enricher.tally import Tally
from enricher.watchdog import Guard, Watchdog
from enricher.worker import Rooms, Worker

log = logging.getLogger(__name__)

# Narrow where news windows are many; a window above the last edge goes into the last bucket.
DEFAULT_BUCKET_EDGES = (16, 24, *range(32, 128, 16), *range(128, 513, 32))
_DEFAULT_RUN_OVERHEAD_TOKENS = 16  # measured on CPU: 10 to 15
_DEFAULT_BATCH_TOKENS = {"cpu": 512, "cuda": 8192}  # measured on CPU; on GPUs the notes' projection, to be measured


@dataclass(frozen=True, slots=True)
class Model:
    """A model that is loaded and warm, with its tokenizer."""

    prepared: PreparedModel
    tokenizer: ArticleTokenizer
    engine: OnnxEngine
    advice: Advice
    lanes: int

    @property
    def card(self) -> ModelCard:
        """Which model makes the records."""
        return self.engine.card


def kafka_config(settings: Settings) -> KafkaConfig:
    """What the Kafka room needs of the settings."""
    kafka, articles = settings.kafka, settings.articles
    return KafkaConfig(
        bootstrap_servers=kafka.bootstrap_servers,
        group_id=kafka.group_id,
        instance=kafka.instance,
        input_topic=kafka.input_topic,
        output_topic=kafka.output_topic,
        dead_letter_topic=kafka.dead_letter_topic,
        session_timeout_s=kafka.session_timeout_s,
        max_poll_interval_s=kafka.max_poll_interval_s,
        transaction_timeout_s=kafka.transaction_timeout_s,
        request_timeout_s=kafka.request_timeout_s,
        max_record_bytes=articles.max_record_bytes,
        # The client counts a record's headers and framing too; 64 KiB is far above what we add.
        max_message_bytes=max(articles.max_record_bytes, articles.max_dead_letter_bytes) + 65_536,
        properties=kafka.client_properties(),
    )


def load_model(settings: Settings) -> Model:
    """Prepare, load and warm the model. Raises ModelError."""
    wanted = settings.model
    prepared = prepare(wanted.source, device=wanted.device, precision=wanted.precision, cache_dir=wanted.cache_dir)
    tokenizer = ArticleTokenizer(
        prepared.checkpoint,
        max_article_tokens=settings.articles.max_article_tokens,
        too_long=settings.articles.too_long,
    )
    advice = _advice(settings, prepared, tokenizer)
    lanes = wanted.lanes or advice.lanes or default_lanes(prepared.device)
    engine = OnnxEngine(prepared, threads_per_run=1, pad_id=tokenizer.pad_id, lanes=lanes)
    model = Model(prepared, tokenizer, engine, advice, lanes)
    engine.warm_up(window_lengths(settings, model), batch_tokens=batch_rules(settings, model).max_batch_tokens)
    log.info("model %s (%s) on %s, %d lanes", engine.card.name, engine.card.precision, engine.provider, lanes)
    return model


def _advice(settings: Settings, prepared: PreparedModel, tokenizer: ArticleTokenizer) -> Advice:
    """What suits the model, and on top of it what was tuned for such a machine as this."""
    advice = advice_for(prepared.checkpoint.folder, tokenizer.max_window_tokens)
    window_tokens = settings.batching.max_window_tokens or advice.max_window_tokens
    folders = report_folders(prepared.checkpoint, settings.model.cache_dir)
    tuning = tuning_for(prepared, window_tokens, folders)
    return advice.tuned(tuning) if tuning else advice


def kafka_worker(settings: Settings, model: Model, *, until_caught_up: bool = False) -> Worker:
    """A worker between two Kafka topics, connected. Raises BrokerError and Fenced."""
    config, tally, guard = kafka_config(settings), Tally(), _started_watchdog().guard
    made_of = parts(settings.worker.crash_at)
    source = made_of.source(config, until_caught_up=until_caught_up)
    sink = TransactionalSink(
        config,
        _encoder(settings, model.card),
        membership=source.membership,
        guard=guard,
        tally=tally,
        producer_class=made_of.producer,
    )
    sink.open()
    return _worker(settings, model, source, sink, guard, tally, made_of)


def file_worker(settings: Settings, model: Model, source: LineSource, sink: LineSink) -> Worker:
    """The same worker between two files."""
    return _worker(settings, model, source, sink, _started_watchdog().guard, Tally(), Parts())


def _started_watchdog() -> Watchdog:
    watchdog = Watchdog()
    watchdog.start()
    return watchdog


def _encoder(settings: Settings, card: ModelCard) -> Encoder:
    return Encoder(
        card,
        version=version("enricher"),
        max_record_bytes=settings.articles.max_record_bytes,
        max_dead_letter_bytes=settings.articles.max_dead_letter_bytes,
        clock=time.time,
    )


def _worker(
    settings: Settings, model: Model, source: Source, sink: Sink, guard: Guard, tally: Tally, made_of: Parts
) -> Worker:
    bell = threading.Event()
    rules = batch_rules(settings, model)
    intake = Intake(
        decode=lambda value: decode_article(value, max_article_chars=settings.articles.max_article_chars),
        tokenizer=_tokenizer_lanes(settings, model.tokenizer, bell, made_of),
        cutter=window_cutter(settings, model),
        scheduler=(ArrivalScheduler if model.prepared.form.packs else LengthBucketScheduler)(rules),
        scheme=LabelScheme.from_labels(model.engine.labels),
        articles_per_call=settings.worker.articles_per_tokenizer_call,
    )
    rooms = Rooms(
        source=source,
        sink=sink,
        intake=intake,
        # As many waiting as running: while the loop is in a transaction, every lane has a batch to go on with.
        engine=made_of.lanes(model.engine.run, threads=model.lanes, waiting=model.lanes, wake=bell.set, name="engine"),
        padded_tokens=model.engine.padded_tokens,
        recovery=Recovery(source, sink, _recovery_limits(settings), clock=time.monotonic, guard=guard),
    )
    return Worker(rooms, _limits(settings, rules), tally, clock=time.monotonic, bell=bell, guard=guard)


def batch_rules(settings: Settings, model: Model) -> BatchRules:
    """What a batch may be, for this model on its device."""
    batching, advice = settings.batching, model.advice
    return BatchRules(
        bucket_edges=batching.bucket_edges or advice.bucket_edges or DEFAULT_BUCKET_EDGES,
        max_batch_tokens=(
            batching.max_batch_tokens or advice.max_batch_tokens or _DEFAULT_BATCH_TOKENS[model.prepared.device]
        ),
        max_wait_s=batching.max_wait_ms / 1000,
        run_overhead_tokens=_overhead_tokens(batching, advice),
    )


def _overhead_tokens(batching: BatchingSettings, advice: Advice) -> int:
    known = (batching.run_overhead_tokens, advice.run_overhead_tokens)  # 0 is an answer too
    return next((tokens for tokens in known if tokens is not None), _DEFAULT_RUN_OVERHEAD_TOKENS)


def window_cutter(settings: Settings, model: Model) -> WindowCutter:
    """How this model's windows are cut. Raises SettingsError where the model has no such windows."""
    batching, tokenizer = settings.batching, model.tokenizer
    length = batching.max_window_tokens or model.advice.max_window_tokens
    overlap = model.advice.overlap_tokens if batching.overlap_tokens is None else batching.overlap_tokens
    if length > tokenizer.max_window_tokens:
        message = f"batching.max_window_tokens is {length}, but the model takes {tokenizer.max_window_tokens} at most"
        raise SettingsError(message)
    cutter = WindowCutter(length, overlap, tokenizer.specials_before, tokenizer.specials_after)
    if overlap > cutter.content_tokens // 2:
        message = f"batching.overlap_tokens is {overlap}: more than half of a window of {length} tokens"
        raise SettingsError(message)
    return cutter


def window_lengths(settings: Settings, model: Model) -> list[int]:
    """The lengths that batches will have, about: the buckets' edges, up to the longest window."""
    longest = window_cutter(settings, model).max_window_tokens
    return [*(edge for edge in batch_rules(settings, model).bucket_edges if edge < longest), longest]


def _tokenizer_lanes(
    settings: Settings, tokenizer: ArticleTokenizer, bell: threading.Event, made_of: Parts
) -> Lanes[list[InFlight], Tokenized]:
    def tokenize(tickets: list[InFlight]) -> Tokenized:
        articles = [ticket.article for ticket in tickets if ticket.article is not None]
        return list(zip(tickets, tokenizer.tokenize(articles), strict=True))

    threads = settings.worker.tokenizer_threads or max(1, min(4, available_cores() // 2))
    return made_of.lanes(tokenize, threads=threads, waiting=threads, wake=bell.set, name="tokenizer")


def _limits(settings: Settings, rules: BatchRules) -> Limits:
    worker, publish_interval_s = settings.worker, settings.worker.publish_interval_ms / 1000
    return Limits(
        max_in_flight=worker.max_in_flight_articles,
        max_in_flight_bytes=worker.max_in_flight_bytes,
        max_queued_tokens=worker.backlog_batches * rules.max_batch_tokens,
        publish_interval_s=publish_interval_s,
        poll_interval_s=worker.poll_interval_ms / 1000,
        idle_wait_s=worker.idle_wait_ms / 1000,
        pause_after_s=worker.pause_after_s,
        engine_timeout_s=worker.engine_timeout_s,
        stall_timeout_s=worker.stall_timeout_s,
        drain_timeout_s=worker.drain_timeout_s,
    )


def _recovery_limits(settings: Settings) -> RecoveryLimits:
    return RecoveryLimits(
        timeout_s=settings.worker.recovery_timeout_s,
        # A new producer's init_transactions, and the committed offsets after it.
        attempt_timeout_s=3 * settings.kafka.transaction_timeout_s + 2 * settings.kafka.request_timeout_s,
        max_in_a_row=settings.worker.max_recoveries_in_a_row,
    )
