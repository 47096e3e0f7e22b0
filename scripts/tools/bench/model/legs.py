"""The legs: our variants, and ONNX Runtime's stock provider on a plain export of the same weights."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

from enricher.worker.inference.checkpoint.folder import Checkpoint
from enricher.worker.inference.device.cores import available_cores
from enricher.worker.inference.device.opening import open_session
from enricher.worker.inference.device.session import Feeds
from enricher.worker.inference.graph.variants import Variant
from enricher.worker.inference.run.model import prepare_variant
from enricher.worker.records import Window
from tools.bench.model.cases import Batches, Case
from tools.bench.model.passes import Passes
from tools.bench.model.plain import write_fused

BATCH_TOKENS = (256, 512, 1024)
"""The best of these is used for each leg and case. The worker's default on a CPU is 512."""


@dataclass(frozen=True, slots=True)
class Leg:
    """One way to run batches, with `callers` threads that call `run` at once."""

    name: str
    feeds: Callable[[Sequence[Window]], Any]
    run: Callable[[Any], Any]
    callers: int = 1
    batch_tokens: int = BATCH_TOKENS[0]
    pads: bool = True
    onnx_path: Path | None = None

    def passes(self, batches: Batches) -> Passes:
        """Passes over these batches, with feeds made beforehand."""
        return Passes(self.run, [self.feeds(batch) for batch in batches], self.callers)


def our_leg(checkpoint: Checkpoint, variant: Variant, cache_dir: Path) -> Leg:
    """A variant as the worker runs it: one run per core, one thread each."""
    cores = available_cores()
    path = prepare_variant(checkpoint, variant, "cpu", cache_dir=cache_dir).onnx_path
    session = open_session(path, variant.runtime, threads_per_run=1, concurrency=cores)
    return Leg(
        variant.name,
        lambda batch: variant.feeds(batch, 0),
        lambda feeds: session.run(["labels", "scores"], feeds),
        cores,
    )


def stock_legs(checkpoint: Checkpoint, folder: Path) -> list[Leg]:
    """The export, fused by ONNX Runtime's transformer optimizer: many runs with one thread each, and one run with many."""
    path, cores = write_fused(checkpoint, folder / "optimized.onnx"), available_cores()
    legs = []
    for callers, threads in {(cores, 1), (1, cores)}:
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        feeds = stock_feeds([each.name for each in session.get_inputs()])
        legs.append(Leg(f"stock, {callers} x {threads} thread(s)", feeds, _logits_of(session), callers))
    return legs


def at_its_best(legs: Sequence[Leg], case: Case) -> Leg:
    """The fastest combination of leg and batch size."""
    candidates = [replace(leg, batch_tokens=tokens) for leg in legs for tokens in BATCH_TOKENS]

    def seconds(leg: Leg) -> float:
        batches = case.batching(case.windows, leg.batch_tokens)
        leg.run(leg.feeds(batches[0]))  # warm
        with leg.passes(batches) as passes:
            return passes.once().seconds

    return min(candidates, key=seconds)


def stock_feeds(inputs: Collection[str], pad_id: int = 0) -> Callable[[Sequence[Window]], Feeds]:
    """Makes the arrays of a plain export with these inputs."""

    def feeds(windows: Sequence[Window]) -> Feeds:
        ids, mask = pad(windows, pad_id)
        arrays = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        return {name: array for name, array in arrays.items() if name in inputs}

    return feeds


def pad(windows: Sequence[Window], pad_id: int, *, step_tokens: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Ids and mask, `int64 [windows, length]`: the longest window's length, rounded up to whole steps."""
    lengths = np.array([window.length_tokens for window in windows])
    longest = -(-int(lengths.max()) // step_tokens) * step_tokens
    mask = (np.arange(longest) < lengths[:, None]).astype(np.int64)
    ids = np.full(mask.shape, pad_id, np.int64)
    for row, window in zip(ids, windows, strict=True):
        row[: window.length_tokens] = window.ids
    return ids, mask


def _logits_of(session: ort.InferenceSession) -> Callable[[Feeds], Any]:
    return lambda feeds: session.run(["logits"], feeds)
