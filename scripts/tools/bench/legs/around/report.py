"""The report of the leg `around`: figures, tables, a plot and claims. Measures nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from enricher.worker.build.loaded_model import DEFAULT_BATCH_TOKENS
from tools.bench.legs.around.reading import Reading, table
from tools.bench.load import Mix
from tools.bench.outcome import Claim, Outcome, Plot, Series, Table
from tools.bench.repeating import Run, Spread, claim, us_each
from tools.bench.stages import REST, STAGES
from tools.bench.watching import Work

AIM_US, TOKENIZER_AIM = 40.0, 1.10
GPU_BATCH_TOKENS = DEFAULT_BATCH_TOKENS["cuda"]
"""The cost per batch is then shared by many windows."""


def outcome(results: Sequence[Result], readings: Sequence[Reading]) -> Outcome:
    read = {each.mix: {"reading": each.figures()} for each in readings}
    return Outcome(
        figures={result.mix: result.figures() | read[result.mix] for result in results},
        tables=[_threads(results), _stages(results), table(readings)],
        plots=[_plot(results)],
        claims=[
            *(claim for result in results for claim in result.claims()),
            *(claim for each in readings for claim in each.claims()),
        ],
    )


@dataclass(frozen=True, slots=True)
class Result:
    """The runs of each contender for one mix."""

    mix: Mix
    bare_tokenizer: Sequence[Run]
    worker: Sequence[Run]
    without_tokenizer: Sequence[Run]
    clocked: Sequence[Run]
    large_batches: Sequence[Run]
    large_batches_clocked: Sequence[Run]

    @property
    def ways(self) -> dict[str, Sequence[Run]]:
        """The worker's runs by variation. From memory the tokenizer takes no time and does not evict the caches."""
        large = f"batches of {GPU_BATCH_TOKENS:,} tokens"
        return {"": self.worker, "tokenizer from memory": self.without_tokenizer, large: self.large_batches}

    @property
    def beside_us(self) -> Spread:
        """Microseconds per article outside model and tokenizer."""
        return us_each(self.worker)

    @property
    def tokenizer_ratio(self) -> Spread:
        """The worker's tokenizer time per article over that of the bare library."""
        pairs = zip(self.worker, self.bare_tokenizer, strict=True)
        return Spread.of(
            [run.detail["work"].tokenizer_s / run.detail["work"].counters.records * bare.rate for run, bare in pairs]
        )

    @property
    def conversion_ratio(self) -> Spread:
        """The same over the library's share of those very calls: both with the caches as the worker leaves them."""
        return Spread.of([run.detail["work"].tokenizer_s / run.detail["library_s"] for run in self.worker])

    def stage_us(self, stage: str, *, large_batches: bool = False) -> float:
        """Microseconds of the loop's thread per article in a stage."""
        clocked = self.large_batches_clocked if large_batches else self.clocked
        runs = [(run.detail["stages"][stage], run.detail["work"].counters.records) for run in clocked]
        return Spread.of([1e6 * seconds / records for seconds, records in runs]).median

    def per_article(self, count: str) -> float:
        """Mean number of `count` (such as windows) per article."""
        counters = self.worker[0].detail["work"].counters
        return float(getattr(counters, count) / counters.records)

    def figures(self) -> dict[str, Any]:
        return {
            "articles": self.worker[0].detail["work"].counters.records,
            "windows_per_article": self.per_article("windows"),
            "entities_per_article": self.per_article("entities"),
            "beside_the_tokenizer_us": self.beside_us,
            "beside_a_tokenizer_from_memory_us": us_each(self.without_tokenizer),
            "beside_the_tokenizer_in_large_batches_us": us_each(self.large_batches),
            "threads_us": {part: _thread_us(self.worker, part) for part in _THREADS},
            "tokenizer_over_bare": self.tokenizer_ratio,
            "tokenizer_over_library_inside": self.conversion_ratio,
            "stages_us": {stage: self.stage_us(stage) for stage in (*STAGES, REST)},
            "stages_in_large_batches_us": {
                stage: self.stage_us(stage, large_batches=True) for stage in (*STAGES, REST)
            },
            "others_cores_at_most": max(run.load.others_cores for run in (*self.worker, *self.without_tokenizer)),
        }

    def claims(self) -> list[Claim]:
        windows, entities = self.per_article("windows"), self.per_article("entities")
        beside = (
            f"{self.mix}: {self.beside_us} us of one core per article beside model and tokenizer (aim {AIM_US:g}), "
            f"with {windows:.1f} windows and {entities:.1f} entities each; in batches as large as a GPU gets them "
            f"{us_each(self.large_batches)} us"
        )
        tokenizer = (
            f"{self.mix}: the tokenizer takes {self.tokenizer_ratio} of the bare library's time (aim {TOKENIZER_AIM:g}), "
            f"and {self.conversion_ratio} of what the library takes inside the worker"
        )
        runs = (*self.worker, *self.bare_tokenizer)
        return [
            claim(beside, runs, held=self.beside_us.median <= AIM_US),
            claim(tokenizer, runs, held=self.tokenizer_ratio.median <= TOKENIZER_AIM),
        ]


_THREADS = {
    "loop_s": "the loop",
    "client_s": "the Kafka client, and the hand-over to the worker pool",
    "tokenizer_s": "the tokenizer",
    "broker_s": "the broker, another process",
}


def _thread_us(runs: Sequence[Run], part: str) -> Spread:
    """Microseconds of a core per article in one kind of thread."""
    works: list[Work] = [run.detail["work"] for run in runs]
    return Spread.of([1e6 * getattr(work, part) / work.counters.records for work in works])


def _threads(results: Sequence[Result]) -> Table:
    ways = [
        (f"{result.mix}, {way}" if way else result.mix, runs) for result in results for way, runs in result.ways.items()
    ]
    rows = [(words, *(str(_thread_us(runs, part)) for _, runs in ways)) for part, words in _THREADS.items()]
    rows.append(("beside the tokenizer", *(str(us_each(runs)) for _, runs in ways)))
    note = "; ".join(
        f"{result.mix}: {result.per_article('windows'):.1f} windows and {result.per_article('entities'):.1f} entities each"
        for result in results
    )
    columns = ("", *(name for name, _ in ways))
    return Table("CPU time by thread, us of a core per article", columns, rows, note)


def _stages(results: Sequence[Result]) -> Table:
    ways = [(result, large) for result in results for large in (False, True)]
    rows = [
        (stage, *(f"{result.stage_us(stage, large_batches=large):.1f}" for result, large in ways))
        for stage in (*STAGES, REST)
    ]
    columns = ("", *(f"{result.mix}, {GPU_BATCH_TOKENS:,} tokens" if large else result.mix for result, large in ways))
    return Table("Where the loop's time goes, us of a core per article", columns, rows, "Tokenizer from memory.")


def _plot(results: Sequence[Result]) -> Plot:
    names = [result.mix for result in results]
    series = [
        Series(stage.partition(":")[0], names, [result.stage_us(stage) for result in results])
        for stage in (*STAGES, REST)
    ]
    return Plot(
        "around", "What an article costs beside the model, by stage", "stacked", "us of a core per article", "", series
    )
