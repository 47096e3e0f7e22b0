"""The leg `limit`: how close the worker comes to the throughput of its bare model."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from functools import partial

from enricher.worker.build.loaded_model import Model, window_cutter
from enricher.worker.loop.pool import WorkerPool
from enricher.worker.records import Batch, BatchResult, Window
from tools.bench.bench import Bench
from tools.bench.legs.limit.result import Case, Result, ThreadTime, plot_of, processor_table, rates_table, thread_table
from tools.bench.load import articles
from tools.bench.machine import LoadMeter
from tools.bench.model.cases import in_order_of_arrival
from tools.bench.outcome import Outcome
from tools.bench.repeating import Run, rates
from tools.bench.watching import calls_of, work_off
from tools.cutting import windows_of
from tools.decoding import decode_article

ABOUT = (
    "The worker on a backlog of news articles, Kafka to Kafka, exactly once, against its bare engine: the same windows, "
    "tokenised beforehand, sorted by length, at the engine's best batch size, and nothing else to do. Loading the model, "
    "joining the group and leaving it are not counted; reading, tokenising and publishing are. Start and end (before the "
    "first run and after the last one) are also reported separately, and so is the broker, which runs on the same cores."
)
_BATCH_TOKENS = {"cpu": (256, 512, 1024, 2048), "cuda": (4096, 8192, 16384, 32768)}
_CONTEST_S, _RUN_S = 2.0, 20.0
"""Target duration of a run that finds the batch size, and of a measured run: long enough that start and end weigh little."""
_QUICK_RUN_S = 2.0


def measure(bench: Bench) -> Outcome:
    cases = [_case(bench, name, model) for name, model in _models(bench).items()]
    contenders = {}
    for case in cases:
        contenders[f"{case.name}, bare"] = partial(_bare, case.model, case.batches, len(case.values))
        contenders[f"{case.name}, worker"] = partial(_worker, bench, case)
    runs = bench.interleave(contenders)
    results = [Result(case, runs[f"{case.name}, bare"], runs[f"{case.name}, worker"]) for case in cases]
    return Outcome(
        figures={result.case.name: result.figures() for result in results},
        tables=[rates_table(results), *map(thread_table, results), *map(processor_table, results)],
        plots=[plot_of(results)],
        claims=[result.claim() for result in results],
    )


def _models(bench: Bench) -> dict[str, Model]:
    """fp32, and the variant that the settings choose if it is another one."""
    plain = bench.model_in("fp32")
    return {"fp32": plain} | ({} if plain is bench.model else {"auto": bench.model})


# ---- what is compared


def _case(bench: Bench, name: str, model: Model) -> Case:
    """Find the bare engine's best batch size, and how many articles make a run long enough."""
    sample = articles("news", 43)
    windows = _windows(bench, model, sample)
    sizes = _BATCH_TOKENS[model.prepared.device]
    rate = _bare(model, _batches(windows, sizes[1]), len(sample)).rate
    laps = max(1, round(rate * _CONTEST_S / len(sample)))
    contest = bench.interleave(
        {str(size): partial(_bare, model, _batches(windows, size) * laps, len(sample) * laps) for size in sizes},
        f"{name}, bare, tokens of a batch",
        most=3,
    )
    best = max(contest, key=lambda size: rates(contest[size]).median)
    seconds = _QUICK_RUN_S if bench.quick else _RUN_S
    values = articles("news", len(sample) * max(1, round(rates(contest[best]).median * seconds / len(sample))))
    return Case(name, model, int(best), values, _batches(_windows(bench, model, values), int(best)))


def _windows(bench: Bench, model: Model, values: Sequence[bytes]) -> list[Window]:
    """All windows of all articles, cut as the worker does, longest first."""
    limit = bench.settings.articles.max_article_chars
    decoded = [decode_article(value, max_article_chars=limit) for value in values]
    by_article = windows_of(model.tokenizer, window_cutter(bench.settings, model), decoded)
    windows = [window for own in by_article for window in own]
    return sorted(windows, key=lambda window: window.length_tokens, reverse=True)


def _batches(windows: Sequence[Window], batch_tokens: int) -> list[Batch]:
    """Batches of neighbours in length, as many as fit."""
    return [Batch(tuple(batch)) for batch in in_order_of_arrival(windows, batch_tokens)]


# ---- the contenders


def _bare(model: Model, batches: Sequence[Batch], count: int) -> Run:
    """The engine alone, with as many batches waiting as running. `count`: number of articles in the batches."""
    wakeup = threading.Event()
    with calls_of(model.engine, "run") as runs:
        pool: WorkerPool[Batch, BatchResult] = WorkerPool(
            model.engine.run, threads=model.concurrency, waiting=model.concurrency, wake=wakeup.set, name="bare"
        )
        meter, began_s, done, todo = LoadMeter(), time.monotonic(), 0, iter(batches)
        while done < len(batches):
            wakeup.clear()
            while pool.capacity and (batch := next(todo, None)):
                pool.submit(batch)
            done += len(pool.completed()) or (wakeup.wait(1.0), 0)[1]
        seconds = time.monotonic() - began_s
        load = meter.read()
        pool.close()
    return Run(count / seconds, load, {"threads": ThreadTime.of(runs, model.concurrency, seconds), "count": count})


def _worker(bench: Bench, case: Case) -> Run:
    """The worker on the same articles as a backlog."""
    with bench.topics(case.values) as topics:
        work = work_off(bench, case.model, bench.settings_for(topics))
    assert work.counters.records == len(case.values), "every article has its record"
    times = ThreadTime.of(work.runs, case.model.concurrency, work.seconds)
    return Run(
        work.counters.records / work.seconds, work.load, {"threads": times, "work": work, "count": len(case.values)}
    )
