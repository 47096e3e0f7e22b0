"""Settings -> a loaded, warmed-up model, and the rules of its windows and batches."""

from __future__ import annotations

import gc
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from enricher.worker.inference.checkpoint.folder import Checkpoint
from enricher.worker.inference.device.cores import default_concurrency
from enricher.worker.inference.device.session import Device, Runtime
from enricher.worker.inference.graph.variants import Variant
from enricher.worker.inference.run.advice import Advice, advice_for, cutter_for
from enricher.worker.inference.run.engine import OnnxEngine
from enricher.worker.inference.run.model import PreparedModel, prepare_heads
from enricher.worker.inference.tokenizer.article_tokenizer import ArticleTokenizer
from enricher.worker.records import ModelCard
from enricher.worker.rules.batch_rules import BatchRules
from enricher.worker.rules.windowing import WindowCutter
from enricher.worker.settings import Settings

log = logging.getLogger(__name__)

Value = TypeVar("Value")

# Buckets are narrow where news has many windows. Windows above the last edge go into the last bucket.
DEFAULT_BUCKET_EDGES = (16, 24, *range(32, 128, 16), *range(128, 513, 32))
DEFAULT_BATCH_TOKENS: dict[Runtime, int] = {
    "cpu": 512,
    "openvino-fp32": 512,
    "openvino-bf16": 1024,
    "openvino-int8": 1024,
    "cuda": 8192,
}
"""The default of each runtime, measured on CPUs without AMX. On a GPU it is for fp32, which is eight times slower than fp16
there, so that smaller batches keep it busy."""
GPU_FP16_BATCH_TOKENS = 32_768
"""At most 5 % below the best batch size on an H100 and an H200, from 6 layers of 384 to 24 of 1024; 8192 is up to 30 % below
(scripts/tools/bench/gpu/README.md)."""
RUN_OVERHEAD_TOKENS: dict[Runtime, int] = {
    "cpu": 16,
    "openvino-fp32": 20,
    "openvino-bf16": 32,
    "openvino-int8": 32,
    "cuda": 512,
}
"""The default of each runtime, measured on CPUs without AMX. The value for GPUs is an estimate: what a GPU computes in a
millisecond."""
DEFAULT_EARLY_OVERHEAD: dict[Device, float] = {"cpu": 0.25, "cuda": 0.04}
"""The default of each device. In simulations a batch costs at most 2 % more at half load with these values. Runs on a GPU
have a larger fixed cost and fill large batches, so the value is smaller there."""


@dataclass(frozen=True, slots=True)
class Model:
    """A loaded, warmed-up model with its tokenizer."""

    prepared: PreparedModel
    tokenizer: ArticleTokenizer
    engine: OnnxEngine
    advice: Advice
    concurrency: int

    @property
    def card(self) -> ModelCard:
        """Identifies the model in records."""
        return self.engine.card


def load_model(settings: Settings, checkpoints: Sequence[Checkpoint], *, every_shape: bool = True) -> Model:
    """Prepare, load and warm the model of checkpoints that share an encoder. Raises ModelError.

    Without `every_shape` only a long and a short window are run. OpenVINO then compiles each shape of batches when it first
    occurs, which a call with few articles does not notice.
    """
    wanted = settings.model
    prepared = prepare_heads(
        checkpoints,
        device=wanted.device,
        precision=wanted.precision,
        cache_dir=wanted.cache_dir,
    )
    tokenizer = ArticleTokenizer(
        prepared.checkpoint,
        max_article_tokens=settings.articles.max_article_tokens,
        too_long=settings.articles.too_long,
    )
    advice = advice_for(prepared.checkpoint.folder, tokenizer.max_window_tokens)
    concurrency = wanted.concurrency or default_concurrency(prepared.device)
    engine = OnnxEngine(prepared, threads_per_run=1, pad_id=tokenizer.pad_id, concurrency=concurrency)
    model = Model(prepared, tokenizer, engine, advice, concurrency)
    lengths, batch_tokens = window_lengths(settings, model), batch_rules(settings, model).max_batch_tokens
    engine.warm_up(lengths if every_shape else (), batch_tokens=batch_tokens)
    log.info(
        "model %s (%s) on %s, concurrency %d", engine.card.name, engine.card.precision, engine.provider, concurrency
    )
    return model


def exempt_from_collection() -> None:
    """Exempt all existing objects, which live as long as the process, from garbage collection.

    Otherwise each full collection visits all modules: it stops all threads for 70 ms, a twelfth of the loop's time
    (measured).
    """
    gc.collect()
    gc.freeze()


def default_batch_tokens(variant: Variant) -> int:
    """Tokens of a batch unless a setting says otherwise."""
    fp16_on_gpu = variant.runtime == "cuda" and variant.reduced
    return GPU_FP16_BATCH_TOKENS if fp16_on_gpu else DEFAULT_BATCH_TOKENS[variant.runtime]


def batch_rules(settings: Settings, model: Model) -> BatchRules:
    """The batch rules for this model on its device."""
    batching, variant = settings.batching, model.prepared.variant
    return BatchRules(
        bucket_edges=batching.bucket_edges or DEFAULT_BUCKET_EDGES,
        max_batch_tokens=batching.max_batch_tokens or default_batch_tokens(variant),
        max_wait_s=batching.max_wait_ms / 1000,
        run_overhead_tokens=RUN_OVERHEAD_TOKENS[variant.runtime],
        early_overhead=first_set(batching.early_overhead, default=DEFAULT_EARLY_OVERHEAD[model.prepared.device]),
    )


def first_set(*values: Value | None, default: Value) -> Value:
    """The first value that is not None: 0 counts as set."""
    return next((value for value in values if value is not None), default)


def window_cutter(settings: Settings, model: Model) -> WindowCutter:
    """The cutter of this model's windows. Raises SettingsError if the model does not take windows of this length."""
    batching, advice = settings.batching, model.advice
    overlap_tokens = advice.overlap_tokens if batching.overlap_tokens is None else batching.overlap_tokens
    return cutter_for(model.tokenizer, batching.max_window_tokens or advice.max_window_tokens, overlap_tokens)


def window_lengths(settings: Settings, model: Model) -> list[int]:
    """Approximate lengths of batches: the bucket edges up to the longest window."""
    longest = window_cutter(settings, model).max_window_tokens
    return [*(edge for edge in batch_rules(settings, model).bucket_edges if edge < longest), longest]
