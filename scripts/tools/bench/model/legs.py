"""The legs: our variants, and ONNX Runtime's stock provider on a plain export of the same weights."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
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
from tools.bench.machine import machine_cpu_s
from tools.bench.model.cases import Batches, Case
from tools.bench.model.plain import export

BATCH_TOKENS = (256, 512, 1024)
"""The best of these is used for each leg and case. The worker's default on a CPU is 512."""


@dataclass(frozen=True, slots=True)
class Leg:
    """One way to run batches, with `callers` threads that call `run` at once."""

    name: str
    run: Callable[[Feeds], Any]
    feeds: Callable[[Sequence[Window]], Feeds]
    callers: int
    batch_tokens: int = BATCH_TOKENS[0]


@dataclass(frozen=True, slots=True)
class Timing:
    """One pass over a case. `others_cores` is the processor time of other processes per second."""

    seconds: float
    own_cpu_s: float
    others_cores: float


def our_leg(checkpoint: Checkpoint, variant: Variant, cache_dir: Path) -> Leg:
    """A variant as the worker runs it: one run per core, one thread each."""
    cores = available_cores()
    path = prepare_variant(checkpoint, variant, "cpu", cache_dir=cache_dir).onnx_path
    session = open_session(path, variant.runtime, threads_per_run=1, concurrency=cores)
    return Leg(
        variant.name,
        lambda feeds: session.run(["labels", "scores"], feeds),
        lambda batch: variant.feeds(batch, 0),
        cores,
    )


def stock_legs(checkpoint: Checkpoint, folder: Path) -> list[Leg]:
    """The export, fused by ONNX Runtime's transformer optimizer: many runs with one thread each, and one run with many."""
    path, cores = str(_optimized(checkpoint, folder)), available_cores()
    legs = []
    for callers, threads in {(cores, 1), (1, cores)}:
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        legs.append(Leg(f"stock, {callers} x {threads} thread(s)", _runner(session), _stock_feeds(session), callers))
    return legs


def time_once(leg: Leg, batches: Batches) -> Timing:
    """Run all batches once, with feeds made beforehand."""
    feeds = [leg.feeds(batch) for batch in batches]
    others, cpu_s, began_s = machine_cpu_s(), time.process_time(), time.perf_counter()
    with ThreadPoolExecutor(leg.callers) as pool:
        list(pool.map(leg.run, feeds))
    seconds, cpu_s = time.perf_counter() - began_s, time.process_time() - cpu_s
    return Timing(seconds, cpu_s, max(0.0, (machine_cpu_s() - others - cpu_s) / seconds))


def at_its_best(legs: Sequence[Leg], case: Case) -> Leg:
    """The fastest combination of leg and batch size."""
    candidates = [Leg(leg.name, leg.run, leg.feeds, leg.callers, tokens) for leg in legs for tokens in BATCH_TOKENS]

    def seconds(leg: Leg) -> float:
        batches = case.batching(case.windows, leg.batch_tokens)
        time_once(leg, batches[:1])  # warm
        return time_once(leg, batches).seconds

    return min(candidates, key=seconds)


def _optimized(checkpoint: Checkpoint, folder: Path) -> Path:
    from onnxruntime.transformers import optimizer  # noqa: PLC0415  it configures logging

    logging.disable(logging.WARNING)
    # Level 0: the session applies ONNX Runtime's own passes.
    model = optimizer.optimize_model(
        str(export(checkpoint, folder)),
        model_type="bert",
        num_heads=checkpoint.config.heads,
        hidden_size=checkpoint.config.hidden_size,
        opt_level=0,
    )
    logging.disable(logging.NOTSET)
    fused = model.get_fused_operator_statistics()
    assert checkpoint.config.layers == fused["Attention"], f"the optimizer missed attention: {fused}"
    model.save_model_to_file(str(folder / "optimized.onnx"))
    return folder / "optimized.onnx"


def _runner(session: ort.InferenceSession) -> Callable[[Feeds], Any]:
    return lambda feeds: session.run(["logits"], feeds)


def _stock_feeds(session: ort.InferenceSession) -> Callable[[Sequence[Window]], Feeds]:
    names = {each.name for each in session.get_inputs()}

    def feeds(windows: Sequence[Window]) -> Feeds:
        shape = len(windows), max(window.length_tokens for window in windows)
        ids, mask = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        for index, window in enumerate(windows):
            ids[index, : window.length_tokens], mask[index, : window.length_tokens] = window.ids, 1
        made = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros(shape, np.int64)}
        return {name: value for name, value in made.items() if name in names}

    return feeds
