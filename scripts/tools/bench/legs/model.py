"""The leg `model`: the graph variants on this CPU against ONNX Runtime's stock provider and optimizer. Needs no Kafka."""

from __future__ import annotations

import math
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

from enricher.worker.inference.checkpoint.folder import Checkpoint
from enricher.worker.inference.checkpoint.onnx_folder import OnnxModel
from enricher.worker.inference.device.processor import available_cores
from enricher.worker.inference.device.sessions import Feeds, open_session
from enricher.worker.inference.graph.variants import Variant
from enricher.worker.inference.run.advice import default_cutter
from enricher.worker.inference.run.model import open_model, prepare_variant
from enricher.worker.inference.run.selection import problem_of, recipe_problem, variants_for
from enricher.worker.inference.tokenizer.article_tokenizer import ArticleTokenizer
from enricher.worker.records import Window
from enricher.worker.rules.batching import BatchRules, LengthBucketScheduler
from enricher.worker.wiring.loaded_tasks import DEFAULT_BUCKET_EDGES
from tools import ARTICLES
from tools.bench.bench import Bench
from tools.bench.machine import Load, machine_cpu_s, processor
from tools.bench.model.passes import BATCH_TOKENS, Batches, Leg, Passes, in_order_of_arrival, stock_feeds
from tools.bench.model.plain import write_fused
from tools.bench.outcome import Outcome, Table
from tools.bench.repeating import Run, in_turns, rates, ratios
from tools.worker_parts import decode_article, windows_of

ABOUT = (
    "Every graph variant that this machine runs, int8 too if the model is calibrated, against ONNX Runtime's stock provider "
    "and optimizer on a plain padded export of the same weights, on windows of the sample articles. Each leg has its best "
    "batch size of 256, 512 and 1024 tokens."
)
Figures = dict[str, Any]
_COLUMNS = ("", "batch tokens", "windows/s", "tokens/s", "x stock", "by processor time", "others, cores")
SHORTEST_TOKENS = 8
SEED = 4
EVERY = 3
"""Only every third window is used: the same mix of lengths, in minutes."""
QUICK_WINDOWS = 8

Batching = Callable[[Sequence[Window], int], Batches]
"""Called with windows and the padded tokens that a batch may have."""


def measure(bench: Bench) -> Outcome:
    checkpoint = open_model(bench.settings.model.source)
    if isinstance(checkpoint, OnnxModel):
        why = "not measured: the stock leg is made of weights, and this is an ONNX model"
        return Outcome({"not_measured": why}, [Table("Graph variants", ("",), [(why,)])])
    variants = []
    for variant in variants_for("cpu"):
        if obstacle := problem_of(checkpoint, variant) or recipe_problem(checkpoint, variant):
            bench.say(f"not {variant.name}: {obstacle}")
        else:
            variants.append(variant)
    with tempfile.TemporaryDirectory() as scratch:
        bench.say("building the graphs")
        ours = [our_leg(checkpoint, variant, Path(scratch, "cache")) for variant in variants]
        stock = stock_legs(checkpoint, Path(scratch))
        results = [_result(bench, case, [stock, *([leg] for leg in ours)]) for case in _cases(bench, checkpoint)]
    return Outcome({"model": checkpoint.name, "cases": results}, [_table(result) for result in results])


def _cases(bench: Bench, checkpoint: Checkpoint) -> list[Case]:
    """All; a quick run has few windows of one."""
    every = cases(checkpoint)
    return [replace(every[0], windows=every[0].windows[:QUICK_WINDOWS])] if bench.quick else every


def _result(bench: Bench, case: Case, legs: Sequence[Sequence[Leg]]) -> Figures:
    """The figures of one case; of each group of legs the best takes part, the first group is the stock provider."""
    bench.say(f"{case.name}: finding each leg's best batch size")
    best = [at_its_best(group, case) for group in legs]
    turns = {leg.name: (leg, case.batching(case.windows, leg.batch_tokens)) for leg in best}
    runs = take_turns(turns, bench.repetitions, lambda text: bench.say(f"{case.name}: {text}"))
    rows = [_row(case, leg, runs[leg.name], runs[best[0].name]) for leg in best]
    return {"case": case.name, "windows": len(case.windows), "real_tokens": case.real_tokens, "legs": rows}


def _row(case: Case, leg: Leg, runs: Sequence[Run], stock: Sequence[Run]) -> Figures:
    """Ratios are taken within each repetition, so that other work on the machine affects both sides."""
    windows_per_s, ratio = rates(runs).median, ratios(runs, stock)
    return {
        "leg": leg.name,
        "batch_tokens": leg.batch_tokens,
        "windows_per_s": windows_per_s,
        "tokens_per_s": windows_per_s * case.real_tokens / len(case.windows),
        "ratio_median": ratio.median,
        "ratio_lowest": ratio.low,
        "ratio_highest": ratio.high,
        "cpu_ratio": statistics.median(map(cpu_s, stock)) / statistics.median(map(cpu_s, runs)),
        "others_cores": statistics.median(run.others_cores for run in runs),
    }


def _table(result: Figures) -> Table:
    title = f"{result['case']}: {result['windows']} windows, {result['real_tokens']} tokens; {processor()}"
    rows = [
        (
            row["leg"],
            str(row["batch_tokens"]),
            f"{row['windows_per_s']:.1f}",
            f"{row['tokens_per_s']:.0f}",
            f"{row['ratio_median']:.2f} ({row['ratio_lowest']:.2f} to {row['ratio_highest']:.2f})",
            f"{row['cpu_ratio']:.2f}",
            f"{row['others_cores']:.2f}",
        )
        for row in result["legs"]
    ]
    return Table(title, _COLUMNS, rows)


# ---- windows and their batches


@dataclass(frozen=True, slots=True)
class Case:
    """Windows and their batching, the same for every leg except for the size of batches."""

    name: str
    windows: tuple[Window, ...]
    batching: Batching

    @property
    def real_tokens(self) -> int:
        return sum(window.length_tokens for window in self.windows)


def cases(checkpoint: Checkpoint) -> list[Case]:
    """Even lengths; mixed lengths in order of arrival; mixed lengths batched by the worker's scheduler."""
    windows = sample_windows(checkpoint)[::EVERY]
    mixed = _of_mixed_lengths(windows)
    return [
        Case("even", tuple(windows), by_the_scheduler),
        Case("mixed, in order of arrival", mixed, in_order_of_arrival),
        Case("mixed, batched by the worker", mixed, by_the_scheduler),
    ]


def by_the_scheduler(windows: Sequence[Window], batch_tokens: int) -> Batches:
    """The worker's own scheduler, under backlog."""
    rules = BatchRules(DEFAULT_BUCKET_EDGES, batch_tokens, max_wait_s=1.0, run_overhead_tokens=0)
    scheduler = LengthBucketScheduler(rules)
    scheduler.add(windows)
    return [list(batch.windows) for batch in iter(lambda: scheduler.next_batch(math.inf), None)]


def sample_windows(checkpoint: Checkpoint) -> list[Window]:
    """All windows of the sample articles, with the worker's defaults."""
    tokenizer = ArticleTokenizer(checkpoint)
    cutter = default_cutter(checkpoint.folder, tokenizer)
    articles = [decode_article(line, max_article_chars=1_000_000) for line in ARTICLES.read_bytes().splitlines()]
    return [window for own in windows_of(tokenizer, cutter, articles) for window in own]


def _of_mixed_lengths(windows: Sequence[Window]) -> tuple[Window, ...]:
    """The same windows, cut to evenly distributed lengths, in random order; the seed is fixed."""
    random = np.random.default_rng(SEED)
    longest = max(window.length_tokens for window in windows)
    lengths = random.integers(SHORTEST_TOKENS, longest + 1, len(windows))
    cut = [replace(window, ids=window.ids[:length]) for window, length in zip(windows, lengths, strict=True)]
    return tuple(cut[index] for index in random.permutation(len(cut)))


# ---- legs, and their turns


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


def _logits_of(session: ort.InferenceSession) -> Callable[[Feeds], Any]:
    return lambda feeds: session.run(["logits"], feeds)


def take_turns(
    legs: Mapping[str, tuple[Leg, Batches]], repetitions: int, say: Callable[[str], None]
) -> dict[str, list[Run]]:
    """Passes of each leg over its batches, after one that warms it up. Rates are windows per second."""
    with ExitStack() as closing:
        contenders = {}
        for name, (leg, batches) in legs.items():
            passes = closing.enter_context(leg.passes(batches))
            passes.once()
            contenders[name] = partial(_run, passes, sum(map(len, batches)))
        return in_turns(contenders, repetitions, say)


def cpu_s(run: Run) -> float:
    """Processor time of a pass."""
    return run.load.own_cores * run.load.seconds


def _run(passes: Passes, windows: int) -> Run:
    busy_s = machine_cpu_s()
    done = passes.once()
    others_s = max(0.0, machine_cpu_s() - busy_s - done.cpu_s)
    load = Load(done.seconds, done.cpu_s / done.seconds, broker_cores=0.0, others_cores=others_s / done.seconds)
    return Run(windows / done.seconds, load)
