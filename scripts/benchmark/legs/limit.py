"""The leg `limit`: how near the worker comes to its own model with nothing around it."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from benchmark.bench import Bench
from benchmark.load import articles
from benchmark.machine import LoadMeter
from benchmark.outcome import Claim, Outcome, Plot, Series, Table
from benchmark.repeating import Run, Spread, interleave, rates
from benchmark.watching import Call, Work, calls_of, work_off
from enricher.app import Model, load_model, window_cutter
from enricher.codec import decode_article
from enricher.inference.device import available_cores
from enricher.inference.lanes import Lanes
from enricher.records import Batch, BatchResult, InFlight, Partition, RawRecord, TokenizedArticle, Window

ABOUT = (
    "The worker over a backlog of news articles, Kafka to Kafka, exactly once, against its bare engine: the same windows, "
    "tokenised beforehand, sorted by length, at the batch size that suits the engine best, and nothing else to do. "
    "Loading the model, joining the group and leaving it are not counted; reading, tokenising, publishing, the first and "
    "the last batches are. The broker runs on the same cores: what it takes is counted apart."
)
AIMS = {"fp32": 0.97, "auto": 0.93}
_BATCH_TOKENS = {"cpu": (256, 512, 1024, 2048), "cuda": (4096, 8192, 16384, 32768)}
_CONTEST_S, _RUN_S = 2.0, 20.0
"""How long a run of the contest and one of the comparison should take: so long that start and end weigh little."""
_QUICK_RUN_S = 2.0


@dataclass(frozen=True, slots=True)
class _Lanes:
    """Where the time of the lanes went, in seconds of a lane. `between`: no run, after its first and before its last."""

    computing: float
    held_up: float
    between: float
    start_and_end: float

    @classmethod
    def of(cls, runs: Sequence[Call], lanes: int, seconds: float) -> _Lanes:
        running = sum(call.ended_s - call.began_s for call in runs)
        computing = sum(call.cpu_s for call in runs)
        own = [[call for call in runs if call.thread == thread] for thread in {call.thread for call in runs}]
        active = sum(max(call.ended_s for call in each) - min(call.began_s for call in each) for each in own)
        return cls(computing, running - computing, active - running, lanes * seconds - active)


@dataclass(frozen=True, slots=True)
class _Case:
    """One form of the model, and what to compare it on."""

    name: str
    model: Model
    batch_tokens: int
    values: Sequence[bytes]
    batches: Sequence[Batch]


def measure(bench: Bench) -> Outcome:
    """Run it."""
    cases = [_case(bench, name, model) for name, model in _models(bench).items()]
    contenders = {}
    for case in cases:
        contenders[f"{case.name}, bare"] = partial(_bare, case.model, case.batches, len(case.values))
        contenders[f"{case.name}, worker"] = partial(_worker, bench, case)
    runs = interleave(contenders, bench.repetitions, bench.say)
    results = [_Result(case, runs[f"{case.name}, bare"], runs[f"{case.name}, worker"]) for case in cases]
    return Outcome(
        figures={result.case.name: result.figures() for result in results},
        tables=[_rates(results), *map(_lane_time, results), *map(_processor_time, results)],
        plots=[_plot(results)],
        claims=[result.claim() for result in results],
    )


def _models(bench: Bench) -> dict[str, Model]:
    """fp32, and the form that the settings choose where that is another."""
    if bench.model.card.precision == "fp32":
        return {"fp32": bench.model}
    plain = bench.settings.model.model_copy(update={"precision": "fp32"})
    return {"fp32": load_model(bench.settings.model_copy(update={"model": plain})), "auto": bench.model}


# ---- what is compared


def _case(bench: Bench, name: str, model: Model) -> _Case:
    """Find the batch size that suits the bare engine best, and how many articles make a run long enough."""
    sample = articles("news", 43)
    windows = _windows(bench, model, sample)
    sizes = _BATCH_TOKENS[model.prepared.device]
    rate = _bare(model, _batches(windows, sizes[1]), len(sample)).rate
    laps = max(1, round(rate * _CONTEST_S / len(sample)))
    contest = interleave(
        {str(size): partial(_bare, model, _batches(windows, size) * laps, len(sample) * laps) for size in sizes},
        1 if bench.quick else 3,
        lambda text: bench.say(f"{name}, bare, at batch size {text}"),
    )
    best = max(contest, key=lambda size: rates(contest[size]).median)
    seconds = _QUICK_RUN_S if bench.quick else _RUN_S
    values = articles("news", len(sample) * max(1, round(rates(contest[best]).median * seconds / len(sample))))
    return _Case(name, model, int(best), values, _batches(_windows(bench, model, values), int(best)))


def _windows(bench: Bench, model: Model, values: Sequence[bytes]) -> list[Window]:
    """All windows of all articles, cut as the worker cuts them, the longest first."""
    cutter, windows = window_cutter(bench.settings, model), []
    for number, value in enumerate(values):
        article = decode_article(value, max_article_chars=bench.settings.articles.max_article_chars)
        [tokens] = model.tokenizer.tokenize([article])
        assert isinstance(tokens, TokenizedArticle)
        ticket = InFlight(RawRecord(Partition("bare", 0), number, None, value), 0.0, article=article)
        windows += cutter.cut(ticket, tokens, now_s=0.0)
    return sorted(windows, key=lambda window: window.length_tokens, reverse=True)


def _batches(windows: Sequence[Window], batch_tokens: int) -> list[Batch]:
    """Neighbours by length, as many as fit."""
    batches, start = [], 0
    while start < len(windows):
        count = max(1, batch_tokens // windows[start].length_tokens)
        batches.append(Batch(tuple(windows[start : start + count])))
        start += count
    return batches


# ---- the contenders


def _bare(model: Model, batches: Sequence[Batch], count: int) -> Run:
    """The engine alone, as many batches waiting as running. `count`: articles that the batches make."""
    bell = threading.Event()
    with calls_of(model.engine, "run") as runs:
        lanes: Lanes[Batch, BatchResult] = Lanes(
            model.engine.run, threads=model.lanes, waiting=model.lanes, wake=bell.set, name="bare"
        )
        meter, began_s, done, todo = LoadMeter(), time.monotonic(), 0, iter(batches)
        while done < len(batches):
            bell.clear()
            while lanes.room and (batch := next(todo, None)):
                lanes.submit(batch)
            done += len(lanes.completed()) or (bell.wait(1.0), 0)[1]
        seconds = time.monotonic() - began_s
        load = meter.read()
        lanes.close()
    return Run(count / seconds, load, {"lanes": _Lanes.of(runs, model.lanes, seconds), "count": count})


def _worker(bench: Bench, case: _Case) -> Run:
    """The worker over the same articles as a backlog."""
    with bench.topics(case.values) as topics:
        work = work_off(bench, case.model, bench.settings_for(topics))
    assert work.tally.records == len(case.values), "every article has its record"
    lanes = _Lanes.of(work.runs, case.model.lanes, work.seconds)
    return Run(work.tally.records / work.seconds, work.load, {"lanes": lanes, "work": work, "count": len(case.values)})


# ---- what is said about it


@dataclass(frozen=True, slots=True)
class _Result:
    case: _Case
    bare: Sequence[Run]
    worker: Sequence[Run]

    @property
    def broker_cores(self) -> Spread:
        works: list[Work] = [run.detail["work"] for run in self.worker]
        return Spread.of([work.broker_s / work.seconds for work in works])

    def efficiency(self, *, without_broker: bool) -> Spread:
        """The worker's rate over the bare one, repetition by repetition.

        `without_broker`: over the part of the bare rate that the cores which the broker left would have made.
        """
        cores, shares = available_cores(), []
        for bare, worker in zip(self.bare, self.worker, strict=True):
            work: Work = worker.detail["work"]
            left = (cores - work.broker_s / work.seconds) / cores if without_broker else 1.0
            shares.append(worker.rate / (bare.rate * left))
        return Spread.of(shares)

    def lane_ms(self, runs: Sequence[Run], part: str) -> float:
        """Milliseconds of a lane per article, the median."""
        return Spread.of([1000 * getattr(run.detail["lanes"], part) / run.detail["count"] for run in runs]).median

    def processor_ms(self, part: str) -> float:
        """Milliseconds of a core per article, the median."""
        return Spread.of([1000 * getattr(run.detail["work"], part) / run.detail["count"] for run in self.worker]).median

    def figures(self) -> dict[str, Any]:
        worker = self.worker[0].detail["work"].tally
        return {
            "form": self.case.model.prepared.form.name,
            "articles": len(self.case.values),
            "bare_batch_tokens": self.case.batch_tokens,
            "worker_padding_share": worker.padding_share,
            "bare_articles_per_s": _spread(rates(self.bare)),
            "worker_articles_per_s": _spread(rates(self.worker)),
            "efficiency": _spread(self.efficiency(without_broker=False)),
            "efficiency_broker_apart": _spread(self.efficiency(without_broker=True)),
            "broker_cores": _spread(self.broker_cores),
            "others_cores_at_most": max(run.load.others_cores for run in (*self.bare, *self.worker)),
            "lane_ms_per_article": {
                who: {part: self.lane_ms(runs, part) for part in _LANE_PARTS}
                for who, runs in (("bare", self.bare), ("worker", self.worker))
            },
            "worker_processor_ms_per_article": {part: self.processor_ms(part) for part in _PROCESSOR_PARTS},
        }

    def claim(self) -> Claim:
        aim, share = AIMS[self.case.name], self.efficiency(without_broker=True)
        raw = self.efficiency(without_broker=False)
        text = (
            f"the worker in {self.case.model.card.precision} keeps {share} of its bare model's rate, what the broker takes "
            f"of the cores counted apart (aim {aim}); {raw} with it"
        )
        return Claim(text, held=share.median >= aim)


_LANE_PARTS = {
    "computing": "the model, on the processor",
    "held_up": "in a run, but another thread had the core or the interpreter",
    "between": "no run, between its first and its last",
    "start_and_end": "before its first run, after its last",
}
_PROCESSOR_PARTS = {
    "model_s": "the model",
    "tokenizer_s": "the tokenizer",
    "loop_s": "the loop",
    "client_s": "the Kafka client's threads, and the hand-over to the lanes",
    "broker_s": "the broker",
}


def _spread(spread: Spread) -> dict[str, float]:
    return {"median": spread.median, "low": spread.low, "high": spread.high}


def _rates(results: Sequence[_Result]) -> Table:
    rows = [
        (
            f"{result.case.name} ({result.case.model.prepared.form.name})",
            f"{rates(result.bare)}",
            f"{rates(result.worker)}",
            f"{result.efficiency(without_broker=False)}",
            f"{result.broker_cores}",
            f"{result.efficiency(without_broker=True)}",
        )
        for result in results
    ]
    note = "Median, lowest and highest. The last column: worker / (bare x cores that the broker left / cores)."
    columns = (
        "form",
        "bare, articles/s",
        "worker, articles/s",
        "worker / bare",
        "broker, cores",
        "broker counted apart",
    )
    return Table("The worker over its bare model", columns, rows, note)


def _lane_time(result: _Result) -> Table:
    rows = []
    for part, words in _LANE_PARTS.items():
        bare, worker = result.lane_ms(result.bare, part), result.lane_ms(result.worker, part)
        rows.append((words, f"{bare:.2f}", f"{worker:.2f}", f"{worker - bare:+.2f}"))
    articles_, tokens = len(result.case.values), result.case.batch_tokens
    note = f"{articles_} articles; bare in batches of {tokens} tokens. The lanes' time is all there is."
    return Table(
        f"{result.case.name}: where a lane's time goes, ms per article", ("", "bare", "worker", "more"), rows, note
    )


def _processor_time(result: _Result) -> Table:
    rows = [(words, f"{result.processor_ms(part):.2f}") for part, words in _PROCESSOR_PARTS.items()]
    return Table(f"{result.case.name}: who takes the processor, ms of a core per article", ("", "worker"), rows)


def _plot(results: Sequence[_Result]) -> Plot:
    names = [result.case.name for result in results]
    spreads = {
        "bare": [rates(result.bare) for result in results],
        "worker": [rates(result.worker) for result in results],
    }
    series = [
        Series(name, names, [s.median for s in each], [s.low for s in each], [s.high for s in each])
        for name, each in spreads.items()
    ]
    return Plot("limit", "The worker, Kafka to Kafka, and its bare model", "bars", "form", "articles/s", series)
