"""The leg `around`: what an article costs beside the model, and where."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

from benchmark.bench import Bench
from benchmark.load import Mix, articles
from benchmark.machine import LoadMeter
from benchmark.outcome import Claim, Outcome, Plot, Series, Table
from benchmark.repeating import Run, Spread, disturbed, interleave
from benchmark.stages import REST, STAGES, stage_times
from benchmark.stubs import KnownAnswers
from benchmark.watching import Work, work_off
from enricher.app import window_cutter
from enricher.codec import decode_article
from enricher.records import InFlight, Partition, RawRecord, TokenizedArticle, Window

ABOUT = (
    "The worker, Kafka to Kafka, exactly once, with a model that answers at once and from memory what the real one said "
    "about the same windows: what is left is Python, the Kafka client and the tokenizer. Processor time of one core per "
    "article, thread by thread, so that waiting for the broker counts nothing. The loop's stages come from runs of their "
    "own, with clocks around its functions."
)
AIM_US, TOKENIZER_AIM = 40.0, 1.10
_COUNTS: dict[Mix, int] = {"headlines": 20_000, "news": 43 * 60}
_QUICK_SHARE = 10
_DISTINCT = 1_720
"""Forty times all the samples."""
_TEXTS_PER_CALL = 16
"""As many as the worker gives the tokenizer at once: 8 articles of a title and a body."""


@dataclass(frozen=True, slots=True)
class KnownLoad:
    """Articles, and what there is in them. Answers come from memory, so one article is many records."""

    mix: Mix
    values: Sequence[bytes]
    answers: KnownAnswers
    texts: Sequence[str]


def measure(bench: Bench) -> Outcome:
    """Run it."""
    results = [_measured(bench, known_load(bench, mix)) for mix in _COUNTS]
    return Outcome(
        figures={result.mix: result.figures() for result in results},
        tables=[_threads(results), _stages(results)],
        plots=[_plot(results)],
        claims=[claim for result in results for claim in result.claims()],
    )


def known_load(bench: Bench, mix: Mix) -> KnownLoad:
    """Some distinct articles, and enough repeats of them: the model is asked for each text once."""
    bench.say(f"{mix}: asking the model once for each text")
    count = _COUNTS[mix] // (_QUICK_SHARE if bench.quick else 1)
    distinct = articles(mix, min(count, _DISTINCT))
    decoded = [decode_article(value, max_article_chars=bench.settings.articles.max_article_chars) for value in distinct]
    cutter = window_cutter(bench.settings, bench.model)

    def cut(tokens: TokenizedArticle) -> list[Window]:
        return cutter.cut(InFlight(RawRecord(Partition("", 0), 0, None, None), 0.0), tokens, 0.0)

    answers = KnownAnswers(bench.model, {(each.title, each.body): each for each in decoded}.values(), cut)
    repeats = -(-count // len(distinct))
    return KnownLoad(mix, distinct * repeats, answers, [text for each in decoded for text in (each.title, each.body)])


def _measured(bench: Bench, load: KnownLoad) -> _Result:
    contenders = {
        "bare tokenizer": partial(_bare_tokenizer, bench, load),
        "worker": partial(_worker, bench, load),
        "worker, tokenizer from memory": partial(_worker, bench, load, tokenizer=False),
        "worker, with clocks": partial(_worker, bench, load, tokenizer=False, clocks=True),
    }
    runs = interleave(contenders, bench.repetitions, lambda text: bench.say(f"{load.mix}: {text}"))
    return _Result(load.mix, *runs.values())


# ---- the contenders


def _bare_tokenizer(bench: Bench, load: KnownLoad) -> Run:
    """The library alone, on the same texts, as many at once as the worker gives it."""
    backend = bench.model.tokenizer._backend  # noqa: SLF001  the very object that the worker calls
    meter, took_s = LoadMeter(), 0.0
    for start in range(0, len(load.texts), _TEXTS_PER_CALL):
        began_s = time.thread_time()
        encodings = backend.encode_batch(load.texts[start : start + _TEXTS_PER_CALL], add_special_tokens=False)
        took_s += time.thread_time() - began_s
        del encodings  # letting go of them is no part of making them
    return Run(len(load.texts) / 2 / took_s, meter.read())


def _worker(bench: Bench, load: KnownLoad, *, tokenizer: bool = True, clocks: bool = False) -> Run:
    """The worker with a model that answers from memory; without `tokenizer` that too does; with clocks in the loop."""
    with ExitStack() as stack:
        stack.enter_context(load.answers.in_place_of_the_model())
        if not tokenizer:
            stack.enter_context(load.answers.in_place_of_the_tokenizer())
        topics = stack.enter_context(bench.topics(load.values))
        times = stack.enter_context(stage_times()) if clocks else None
        work = work_off(bench, bench.model, bench.settings_for(topics))
    assert work.tally.records == len(load.values), "every article has its record"
    stages = times.seconds() | {REST: max(0.0, work.loop_s - times.clocked_s)} if times else {}
    return Run(work.tally.records / (work.loop_s + work.client_s), work.load, {"work": work, "stages": stages})


# ---- what is said about it


@dataclass(frozen=True, slots=True)
class _Result:
    mix: Mix
    bare_tokenizer: Sequence[Run]
    worker: Sequence[Run]
    without_tokenizer: Sequence[Run]
    clocked: Sequence[Run]

    def thread_us(self, part: str, *, tokenizer: bool) -> Spread:
        """Microseconds of a core per article, in one kind of thread."""
        works: list[Work] = [run.detail["work"] for run in (self.worker if tokenizer else self.without_tokenizer)]
        return Spread.of([1e6 * getattr(work, part) / work.tally.records for work in works])

    @property
    def beside_us(self) -> Spread:
        """All that is neither the model nor the tokenizer."""
        return Spread.of([1e6 / run.rate for run in self.worker])

    @property
    def beside_alone_us(self) -> Spread:
        """The same, with a tokenizer that takes no time and so leaves the caches alone."""
        return Spread.of([1e6 / run.rate for run in self.without_tokenizer])

    @property
    def tokenizer_ratio(self) -> Spread:
        """The worker's calls of the tokenizer over the bare library's time, per article."""
        pairs = zip(self.worker, self.bare_tokenizer, strict=True)
        return Spread.of(
            [run.detail["work"].tokenizer_s / run.detail["work"].tally.records * bare.rate for run, bare in pairs]
        )

    def stage_us(self, stage: str) -> float:
        """Microseconds of the loop's thread per article."""
        runs = [(run.detail["stages"][stage], run.detail["work"].tally.records) for run in self.clocked]
        return Spread.of([1e6 * seconds / records for seconds, records in runs]).median

    def per_article(self, count: str) -> float:
        """How many windows or entities an article has."""
        tally = self.worker[0].detail["work"].tally
        return float(getattr(tally, count) / tally.records)

    def figures(self) -> dict[str, Any]:
        """For machines."""
        return {
            "articles": self.worker[0].detail["work"].tally.records,
            "windows_per_article": self.per_article("windows"),
            "entities_per_article": self.per_article("entities"),
            "beside_the_tokenizer_us": _spread(self.beside_us),
            "beside_a_tokenizer_from_memory_us": _spread(self.beside_alone_us),
            "threads_us": {part: _spread(self.thread_us(part, tokenizer=True)) for part in _THREADS},
            "tokenizer_over_bare": _spread(self.tokenizer_ratio),
            "stages_us": {stage: self.stage_us(stage) for stage in (*STAGES, REST)},
            "others_cores_at_most": max(run.load.others_cores for run in (*self.worker, *self.without_tokenizer)),
        }

    def claims(self) -> list[Claim]:
        """What was aimed at."""
        windows, entities = self.per_article("windows"), self.per_article("entities")
        beside = (
            f"{self.mix}: {self.beside_us} us of one core per article beside model and tokenizer (aim {AIM_US:g}), "
            f"with {windows:.1f} windows and {entities:.1f} entities each"
        )
        tokenizer = f"{self.mix}: the tokenizer takes {self.tokenizer_ratio} of its bare time (aim {TOKENIZER_AIM:g})"
        # Processor time suffers from other processes too: they take the caches.
        if disturbance := disturbed((*self.worker, *self.bare_tokenizer)):
            return [Claim(f"{text}; {disturbance}", held=False) for text in (beside, tokenizer)]
        return [
            Claim(beside, held=self.beside_us.median <= AIM_US),
            Claim(tokenizer, held=self.tokenizer_ratio.median <= TOKENIZER_AIM),
        ]


_THREADS = {
    "loop_s": "the loop",
    "client_s": "the Kafka client, and the hand-over to the lanes",
    "tokenizer_s": "the tokenizer",
    "broker_s": "the broker, another process",
}


def _spread(spread: Spread) -> dict[str, float]:
    return {"median": spread.median, "low": spread.low, "high": spread.high}


def _threads(results: Sequence[_Result]) -> Table:
    rows = [
        (
            words,
            *(str(result.thread_us(part, tokenizer=tokenizer)) for result in results for tokenizer in (True, False)),
        )
        for part, words in _THREADS.items()
    ]
    rows.append(
        (
            "beside the tokenizer",
            *(str(each) for result in results for each in (result.beside_us, result.beside_alone_us)),
        )
    )
    columns = ("", *(name for result in results for name in (result.mix, f"{result.mix}, tokenizer from memory")))
    note = "; ".join(
        f"{result.mix}: {result.per_article('windows'):.1f} windows and {result.per_article('entities'):.1f} entities each"
        for result in results
    )
    return Table("Who takes the processor, us of a core per article", columns, rows, note)


def _stages(results: Sequence[_Result]) -> Table:
    rows = [(stage, *(f"{result.stage_us(stage):.1f}" for result in results)) for stage in (*STAGES, REST)]
    columns = ("", *(result.mix for result in results))
    return Table("Where the loop's time goes, us of a core per article", columns, rows, "Tokenizer from memory.")


def _plot(results: Sequence[_Result]) -> Plot:
    names = [result.mix for result in results]
    series = [
        Series(stage.partition(":")[0], names, [result.stage_us(stage) for result in results])
        for stage in (*STAGES, REST)
    ]
    return Plot(
        "around", "What an article costs beside the model, by stage", "stacked", "us of a core per article", "", series
    )
