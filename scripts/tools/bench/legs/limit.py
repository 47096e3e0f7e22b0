"""The leg `limit`: how close the worker comes to the throughput of its bare model."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from enricher.worker.inference.device.hardware import available_cores
from enricher.worker.loop.pool import WorkerPool
from enricher.worker.records import Batch, BatchResult, Window
from enricher.worker.wiring.loaded_tasks import Model, window_cutter
from tools.bench.bench import Bench
from tools.bench.load import articles
from tools.bench.outcome import Claim, Outcome, Table
from tools.bench.runs import LoadMeter, Run, Spread, claim, rates
from tools.bench.watching import Call, Work, calls_of, work_off
from tools.worker_parts import decode_article, in_order_of_arrival, windows_of

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
AIMS = {"fp32": 0.97, "auto": 0.93}
_FINDS = ("entities", "text")
_CATALOGUE_AIM = 0.97


def measure(bench: Bench) -> Outcome:
    cases = [_case(bench, name, model) for name, model in _models(bench).items()]
    contenders = {}
    for case in cases:
        contenders[f"{case.name}, bare"] = partial(run_bare, case.model, case.batches, len(case.values))
        contenders[f"{case.name}, worker"] = partial(_worker, bench, case)
    finds = _FINDS if bench.catalogue_names else ()
    for find in finds:
        contenders[find] = partial(_worker, bench, cases[-1], find)
    runs = bench.interleave(contenders)
    results = [Result(case, runs[f"{case.name}, bare"], runs[f"{case.name}, worker"]) for case in cases]
    return Outcome(
        figures={result.case.name: result.figures() for result in results},
        tables=[rates_table(results), *map(processor_table, results)],
        claims=[
            *(result.claim() for result in results),
            *(catalogue_claim(bench.catalogue_names, find, runs[find], results[-1].worker) for find in finds),
        ],
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
    rate = run_bare(model, _batches(windows, sizes[1]), len(sample)).rate
    laps = max(1, round(rate * _CONTEST_S / len(sample)))
    contest = bench.interleave(
        {str(size): partial(run_bare, model, _batches(windows, size) * laps, len(sample) * laps) for size in sizes},
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


def run_bare(model: Model, batches: Sequence[Batch], count: int) -> Run:
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
            done += len(pool.take_results()) or (wakeup.wait(1.0), 0)[1]
        seconds = time.monotonic() - began_s
        load = meter.read()
        pool.close()
    return Run(count / seconds, load, {"threads": ThreadTime.of(runs, model.concurrency, seconds), "count": count})


def _worker(bench: Bench, case: Case, find: str = "") -> Run:
    """The worker on the same articles as a backlog. `find`: with a catalogue, what gets ids (`catalogue.find`)."""
    catalogue = {"catalogue": {"path": bench.catalogue, "find": find}} if find else {}
    with bench.topics(case.values) as topics:
        work = work_off(bench, case.model, bench.settings_for(topics, **catalogue))
    assert work.counters.records == len(case.values), "every article has its record"
    times = ThreadTime.of(work.runs, case.model.concurrency, work.seconds)
    return Run(
        work.counters.records / work.seconds, work.load, {"threads": times, "work": work, "count": len(case.values)}
    )


# ---- report


@dataclass(frozen=True, slots=True)
class ThreadTime:
    """Thread seconds by use: in runs of the model, between a thread's first and last run, before and after those."""

    running: float
    between: float
    start_and_end: float

    @property
    def active_share(self) -> float:
        """The share of the time with a backlog, that is without start and end."""
        active = self.running + self.between
        return active / (active + self.start_and_end)

    @classmethod
    def of(cls, runs: Sequence[Call], concurrency: int, seconds: float) -> ThreadTime:
        """From the model's calls during `seconds` of wall time."""
        running = sum(call.ended_s - call.began_s for call in runs)
        own = [[call for call in runs if call.thread == thread] for thread in {call.thread for call in runs}]
        active = sum(max(call.ended_s for call in each) - min(call.began_s for call in each) for each in own)
        return cls(running, active - running, concurrency * seconds - active)


@dataclass(frozen=True, slots=True)
class Case:
    """One graph variant of the model, and the articles to compare it on."""

    name: str
    model: Model
    batch_tokens: int
    values: Sequence[bytes]
    batches: Sequence[Batch]


@dataclass(frozen=True, slots=True)
class Result:
    """The runs of both contenders in one graph variant."""

    case: Case
    bare: Sequence[Run]
    worker: Sequence[Run]

    @property
    def broker_cores(self) -> Spread:
        """Cores that the broker used while the worker ran."""
        works: list[Work] = [run.detail["work"] for run in self.worker]
        return Spread.of([work.broker_s / work.seconds for work in works])

    def efficiency(self, *, without_broker: bool = False, without_ends: bool = False) -> Spread:
        """The worker's rate over the bare one, repetition by repetition.

        `without_broker`: the bare rate is scaled to the cores that the broker left.
        `without_ends`: both rates count only the time with a backlog, from a thread's first run to the end of its last.
        """
        cores, shares = available_cores(), []
        for bare, worker in zip(self.bare, self.worker, strict=True):
            work: Work = worker.detail["work"]
            left = (cores - work.broker_s / work.seconds) / cores if without_broker else 1.0
            ends = worker.detail["threads"].active_share / bare.detail["threads"].active_share if without_ends else 1.0
            shares.append(worker.rate / (bare.rate * left * ends))
        return Spread.of(shares)

    def processor_ms(self, part: str) -> float:
        """Median milliseconds of a core per article."""
        return Spread.of([1000 * getattr(run.detail["work"], part) / run.detail["count"] for run in self.worker]).median

    def figures(self) -> dict[str, Any]:
        worker = self.worker[0].detail["work"].counters
        return {
            "variant": self.case.model.prepared.variant.name,
            "articles": len(self.case.values),
            "bare_batch_tokens": self.case.batch_tokens,
            "worker_padding_share": worker.padding_share,
            "bare_articles_per_s": rates(self.bare),
            "worker_articles_per_s": rates(self.worker),
            "efficiency": self.efficiency(),
            "efficiency_broker_apart": self.efficiency(without_broker=True),
            "efficiency_under_backlog": self.efficiency(without_broker=True, without_ends=True),
            "broker_cores": self.broker_cores,
            "others_cores_at_most": max(run.load.others_cores for run in (*self.bare, *self.worker)),
            "worker_processor_ms_per_article": {part: self.processor_ms(part) for part in _PARTS},
        }

    def claim(self) -> Claim:
        """The aim of this leg; it cannot hold if other processes disturbed the runs."""
        aim, share = AIMS[self.case.name], self.efficiency(without_broker=True, without_ends=True)
        text = (
            f"the worker in {self.case.model.card.precision} keeps {share} of its bare model's rate under backlog, not "
            f"counting the broker's cores (aim {aim}); {self.efficiency(without_broker=True)} with start and "
            f"end, {self.efficiency()} also counting the broker"
        )
        return claim(text, (*self.bare, *self.worker), held=share.median >= aim)


_PARTS = {
    "tokenizer_s": "the tokenizer",
    "loop_s": "the loop",
    "rest_s": "the model's threads, the Kafka client's, and the hand-over to the worker pool",
    "broker_s": "the broker",
}


def catalogue_claim(names: int, find: str, having: Sequence[Run], without: Sequence[Run]) -> Claim:
    """The worker's rate with a catalogue over that without, repetition by repetition."""
    ratio = Spread.of([one.rate / other.rate for one, other in zip(having, without, strict=True)])
    text = (
        f"with a catalogue of {names:,} names, catalogue.find={find}, the worker keeps {ratio} of its rate (aim "
        f"{_CATALOGUE_AIM})"
    )
    return claim(text, (*having, *without), held=ratio.median >= _CATALOGUE_AIM)


def rates_table(results: Sequence[Result]) -> Table:
    rows = [
        {
            "variant": f"{result.case.name} ({result.case.model.prepared.variant.name})",
            "bare, articles/s": rates(result.bare),
            "worker, articles/s": rates(result.worker),
            "worker / bare": result.efficiency(),
            "broker, cores": result.broker_cores,
            "without the broker": result.efficiency(without_broker=True),
            "and under backlog": result.efficiency(without_broker=True, without_ends=True),
        }
        for result in results
    ]
    note = (
        "Median, lowest and highest. Without the broker: worker / (bare x cores that the broker left / cores); under "
        "backlog: the same from the threads' first runs to the ends of their last. A ratio above 1 only says that the "
        "difference is within the noise of the machine."
    )
    return Table.of("The worker over its bare model", rows, note)


def processor_table(result: Result) -> Table:
    rows = [{"": words, "worker": result.processor_ms(part)} for part, words in _PARTS.items()]
    return Table.of(f"{result.case.name}: CPU time by thread, ms of a core per article", rows)
