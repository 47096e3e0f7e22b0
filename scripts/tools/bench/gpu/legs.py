"""The contenders of the steps, and their timing: windows of random ids, our variants and others on the same weights.

Others are ONNX Runtime's stock optimizer and, where it is installed, PyTorch. Which figures are taken is the steps' matter.
"""

from __future__ import annotations

import importlib
import importlib.util
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from threading import Barrier
from typing import Any

import numpy as np
import onnx

from enricher.worker.inference.checkpoint.folder import Checkpoint
from enricher.worker.inference.device.sessions import Feeds, open_session
from enricher.worker.inference.graph.packed_cuda import PackedCudaFloat32, PackedFloat16
from enricher.worker.inference.graph.padded import PackedFloat32
from enricher.worker.inference.graph.variants import Variant
from enricher.worker.inference.run.advice import cutter_for
from enricher.worker.inference.run.model import open_model
from enricher.worker.inference.tokenizer.article_tokenizer import ArticleTokenizer
from enricher.worker.records import Partition, RawRecord, Ticket, Window
from tools import ARTICLES
from tools.bench.gpu.checkpoints import SHAPES
from tools.bench.gpu.rows import GpuBench, model_source
from tools.bench.plain_export import write_fused
from tools.worker_parts import decode_article, in_order_of_arrival, packed_batches, pad, windows_of

WINDOW_TOKENS, OVERLAP_TOKENS = 256, 64
HEADLINES = 0.6
"""The share of a stream's articles that are only a headline."""
HEADLINE_TOKENS = range(12, 41)
FIRST_ID = 5
"""Smaller ids are special tokens in every supported vocabulary."""
TICKET = Ticket(RawRecord(Partition("samples", 0), 0, None, None), arrived_s=0.0)


@dataclass(frozen=True, slots=True)
class Leg:
    """One way to run batches: `run` takes what `feeds` makes of one."""

    name: str
    feeds: Callable[[Sequence[Window]], Any]
    run: Callable[[Any], Any]
    pads: bool = True


@dataclass(frozen=True, slots=True)
class Case:
    """Windows in the order in which they are batched. `lengths_tokens` includes special tokens."""

    name: str
    lengths_tokens: tuple[int, ...]

    def windows(self, vocabulary: int) -> list[Window]:
        """Random ids; the seed is fixed."""
        rng = np.random.default_rng(0)
        return [window_of(rng.integers(FIRST_ID, vocabulary, length, np.int32)) for length in self.lengths_tokens]


def even(windows: int) -> Case:
    """All of one length."""
    return Case(f"{WINDOW_TOKENS} each", (WINDOW_TOKENS,) * windows)


def news(windows: int) -> list[Case]:
    """Headlines and the sample articles' windows: by arrival, which pads a rival's batches, and sorted, which pads least."""
    rng, articles, lengths = np.random.default_rng(1), _article_lengths(), list[int]()
    while len(lengths) < windows:
        if rng.random() < HEADLINES:
            lengths.append(int(rng.choice(HEADLINE_TOKENS)))
        else:
            lengths += articles[rng.integers(len(articles))]
    arrived = tuple(lengths[:windows])
    return [Case("news, by arrival", arrived), Case("news, sorted", tuple(sorted(arrived)))]


def window_of(ids: np.ndarray) -> Window:
    """A window of no article."""
    ids = ids.astype(np.int32)
    return Window(TICKET, ids, start=0, own_start=0, own_stop=0, specials_before=0, arrived_s=0.0)


@cache
def _article_lengths() -> list[list[int]]:
    """The windows' lengths of each sample article, in tokens of the worker's model."""
    tokenizer = ArticleTokenizer(open_model(model_source()))
    cutter = cutter_for(tokenizer, WINDOW_TOKENS, OVERLAP_TOKENS)
    articles = [decode_article(line, max_article_chars=1_000_000) for line in ARTICLES.read_bytes().splitlines()]
    return [[window.length_tokens for window in own] for own in windows_of(tokenizer, cutter, articles)]


# ---- legs on ONNX Runtime


STOCK = "stock optimizer fp16, padded"
PACKED_FP16, PACKED_FP32 = PackedFloat16(), PackedCudaFloat32()


def our_leg(bench: GpuBench, checkpoint: Checkpoint, variant: Variant) -> Leg:
    """A packed variant of ours. In a dry run its graph and arrays are made, and a variant for the CPU runs instead."""
    built, runs = bench.graph(checkpoint, variant), variant
    if bench.dry:
        runs = PackedFloat32()
        built = bench.graph(checkpoint, runs)
    session = open_session(built.onnx_path, runs.runtime, threads_per_run=1)

    def feeds(windows: Sequence[Window]) -> Feeds:
        arrays = variant.feeds(windows, 0)
        return runs.feeds(windows, 0) if bench.dry else arrays

    return Leg(variant.name, feeds, lambda arrays: session.run(["labels", "scores"], arrays), pads=False)


def stock_leg(bench: GpuBench, shape: str) -> Leg:
    """A plain export, fused and turned into float16 by ONNX Runtime's transformer optimizer. float32 in a dry run."""
    checkpoint = bench.checkpoint(shape)
    path = write_fused(checkpoint, bench.scratch / "stock.onnx", half=not bench.dry)
    session = open_session(path, "cpu" if bench.dry else "cuda", threads_per_run=1, cpu_nodes=True)
    known = {each.name for each in onnx.load(path, load_external_data=False).graph.input}
    pad_id = checkpoint.first_position - 1 if checkpoint.first_position else 0

    def feeds(windows: Sequence[Window]) -> Feeds:
        ids, mask = pad(windows, pad_id)
        arrays = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        return {name: array for name, array in arrays.items() if name in known}

    return Leg(STOCK, feeds, lambda arrays: session.run(["logits"], arrays))


# ---- legs on PyTorch


COMPILED_STEP_TOKENS = 64
"""Lengths are rounded up to it for the compiled model, which is compiled once per shape."""
NOT_INSTALLED = "PyTorch is not installed"


def has_torch() -> bool:
    """Whether PyTorch is installed. It is not one of our dependencies."""
    return importlib.util.find_spec("torch") is not None


def torch_leg(folder: Path, precision: str, *, compiled: bool, dry: bool) -> Leg:
    """`precision` is fp16 or fp32. Labels and scores are computed on the device, and come back as two arrays."""
    torch: Any = importlib.import_module("torch")  # most machines have none
    from transformers import AutoModelForTokenClassification  # noqa: PLC0415  slow to import

    device = "cpu" if dry else "cuda"
    kind = {"fp16": torch.float16, "fp32": torch.float32}[precision]
    plain: Any = AutoModelForTokenClassification.from_pretrained(folder, dtype=kind).to(device).eval()
    model = torch.compile(plain, dynamic=True) if compiled else plain
    step = COMPILED_STEP_TOKENS if compiled else 1

    def feeds(windows: Sequence[Window]) -> dict[str, Any]:
        ids, mask = pad(windows, plain.config.pad_token_id, step_tokens=step)
        return {"input_ids": torch.from_numpy(ids), "attention_mask": torch.from_numpy(mask)}

    def run(arrays: dict[str, Any]) -> Any:  # noqa: ANN401  torch's own
        with torch.inference_mode():
            logits = model(**{name: array.to(device) for name, array in arrays.items()}).logits.float()
            scores, labels = logits.softmax(-1).max(-1)
            return labels.cpu().numpy(), scores.cpu().numpy()

    return Leg(f"PyTorch {precision}, {'compiled' if compiled else 'eager'}", feeds, run)


def empty_cache() -> None:
    """Give PyTorch's memory back to the GPU, for the next leg."""
    importlib.import_module("gc").collect()
    importlib.import_module("torch").cuda.empty_cache()


# ---- timing


LEAST_PASSES = 3


@dataclass(frozen=True, slots=True)
class Timing:
    """Whole passes over all feeds. `cores` is the processor time of this process per second of them."""

    median_s: float
    slowest_over_fastest: float
    cores: float


def measure(bench: GpuBench, leg: Leg, shape: str, case: Case, batch_tokens: int, threads: int) -> None:
    """Add the row of one cell. Tokens and TFLOP/s count real tokens, not padding."""
    lengths = np.array(case.lengths_tokens)
    batching = in_order_of_arrival if leg.pads else packed_batches
    batches = batching(case.windows(SHAPES[shape].vocab_size), batch_tokens)
    padded = sum(len(batch) * max(window.length_tokens for window in batch) for batch in batches)
    timing = timed(leg.run, [leg.feeds(batch) for batch in batches], threads, bench.seconds(0.8))
    bench.add(
        leg=leg.name,
        shape=shape,
        case=case.name,
        batch_tokens=batch_tokens,
        threads=threads,
        windows_per_s=len(lengths) / timing.median_s,
        tokens_per_s=int(lengths.sum()) / timing.median_s,
        tflops=SHAPES[shape].flops(lengths) / timing.median_s / 1e12,
        padding=padded / int(lengths.sum()) if leg.pads else 1.0,
        slowest_over_fastest=timing.slowest_over_fastest,
        cores=timing.cores,
    )


def timed(run: Callable[[Any], Any], feeds: Sequence[Any], threads: int, least_s: float) -> Timing:
    """Blocks for at least `LEAST_PASSES` passes and `least_s`, after one that warms up."""
    together = Barrier(threads)

    def warm(_: int) -> None:
        together.wait()  # each thread has one turn
        for feed in feeds:
            run(feed)

    seconds = list[float]()
    # One pool for all passes: a device's streams and handles are per thread, and cuDNN plans for each shape.
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(warm, range(threads)))
        began_s, cpu_s = time.perf_counter(), time.process_time()
        while len(seconds) < LEAST_PASSES or sum(seconds) < least_s:
            list(pool.map(run, feeds))
            seconds.append(time.perf_counter() - began_s - sum(seconds))
        cpu_s = time.process_time() - cpu_s
    return Timing(statistics.median(seconds), max(seconds) / min(seconds), cpu_s / sum(seconds))
