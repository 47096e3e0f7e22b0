"""The leg `telemetry`: what metrics and traces cost a worker."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any
from unittest.mock import patch

from enricher.worker.build.observation import observe, worker_facts
from enricher.worker.commands.progress import repeating
from enricher.worker.loop.loop import Worker
from enricher.worker.loop.ports import Tracing
from enricher.worker.records import Batch, DeadLetter, Ticket
from enricher.worker.settings import Settings
from enricher.worker.telemetry.instruments import INSTRUMENTS
from enricher.worker.telemetry.otlp import export_metrics, export_spans
from enricher.worker.telemetry.prometheus import exposition
from tools.bench.bench import Bench
from tools.bench.legs.around import KnownLoad, known_load
from tools.bench.load import Mix
from tools.bench.otlp_sink import otlp_sink
from tools.bench.outcome import Claim, Outcome, Plot, Table
from tools.bench.repeating import Run, Spread, bars, claim, us_each
from tools.bench.watching import WatchedCounters, work_off
from tools.only_task import tasks_of

ABOUT = (
    "The worker with a model that answers at once, so that no cost hides behind it: first without counting and tracing, "
    "then with metrics scraped and exported by OTLP every five seconds, then with traces too, every article in a "
    "publisher's trace, unsampled or sampled. CPU time of all threads per article, the tokenizer's included."
)
AIM_SHARE = 0.02
_EVERY_S = 5.0
_TRACE = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-"
OFF, METRICS, UNSAMPLED, SAMPLED = "nothing counted", "metrics", "metrics, unsampled traces", "metrics, sampled traces"
_TRACED = (UNSAMPLED, SAMPLED)
_MIXES: tuple[Mix, ...] = ("headlines", "news")


def measure(bench: Bench) -> Outcome:
    results = [_measure_mix(bench, known_load(bench, mix)) for mix in _MIXES]
    return Outcome(
        figures={result.mix: result.figures() for result in results},
        tables=[_table(results)],
        plots=[_plot(results)],
        claims=[claim for result in results for claim in result.claims()],
    )


def _measure_mix(bench: Bench, load: KnownLoad) -> _Result:
    contenders = {name: partial(_worker, bench, load, name) for name in (OFF, METRICS, UNSAMPLED, SAMPLED)}
    return _Result(load.mix, bench.interleave(contenders, load.mix))


def _worker(bench: Bench, load: KnownLoad, name: str) -> Run:
    # All inputs carry a trace context: the client reads it whether or not it is used.
    headers = [("traceparent", _TRACE + (b"01" if name == SAMPLED else b"00"))]
    with ExitStack() as stack:
        stack.enter_context(load.answers.in_place_of_the_model())
        topics = stack.enter_context(bench.topics(load.values, headers=headers))
        settings = bench.settings_for(topics)
        endpoint = stack.enter_context(otlp_sink())
        variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_METRIC_EXPORT_INTERVAL": f"{1000 * _EVERY_S:.0f}"}
        stack.enter_context(patch.dict("os.environ", variables))
        tracing: Tracing | None = None
        if name in _TRACED:
            tracing = stack.enter_context(export_spans(worker_facts(settings)))
        work = work_off(
            bench,
            bench.model,
            settings,
            counters=_Uncounted(bench.broker_pids) if name == OFF else None,
            tracing=_Untraced() if name == OFF else tracing,
            beside=nullcontext if name == OFF else partial(_looked_at, bench, settings),
        )
    assert work.counters.records == len(load.values), "every article has its record"
    return Run(work.counters.records / (work.loop_s + work.client_s + work.tokenizer_s), work.load, {"work": work})


@contextmanager
def _looked_at(bench: Bench, settings: Settings, worker: Worker) -> Iterator[None]:
    """Scrape the worker and export its metrics, periodically."""
    seen = observe(settings, tasks_of(settings, bench.model), worker)
    with export_metrics(seen, INSTRUMENTS), repeating(lambda: exposition(seen, ""), _EVERY_S):
        yield


class _Uncounted(WatchedCounters):
    """Records only begin, end and the number of records, which the measurement needs."""

    def count_batch(self, batch: Batch, padded_tokens: int, budget_tokens: int, now_s: float) -> None:
        """Do nothing."""

    def count_published(self, tickets: Sequence[Ticket], *times_s: Any, **named: Any) -> None:  # noqa: ANN401  as above
        super().count_published((), *times_s, **named)
        self.records += len(tickets)


class _Untraced:
    """A tracing without any effect; it does not even propagate contexts."""

    def begin_articles(self, tickets: Sequence[Ticket]) -> None:
        """Do nothing."""

    def begin_batch(self, batch: Batch) -> None:
        """Do nothing."""

    def end_batch(self, batch: Batch) -> None:
        """Do nothing."""

    def transaction(self, tickets: Sequence[Ticket]) -> AbstractContextManager[dict[Ticket, DeadLetter]]:
        del tickets
        return nullcontext({})


# ---- report


@dataclass(frozen=True, slots=True)
class _Result:
    mix: Mix
    runs: dict[str, list[Run]]

    def us(self, name: str) -> Spread:
        """Microseconds of a core per article."""
        return us_each(self.runs[name])

    def share(self, name: str) -> Spread:
        """Share of throughput lost, repetition by repetition: 0.02 is 2 %."""
        pairs = zip(self.runs[name], self.runs[OFF], strict=True)
        return Spread.of([1 - run.rate / off.rate for run, off in pairs])

    def figures(self) -> dict[str, Any]:
        return {name: {"us_per_article": self.us(name), "share_of_throughput": self.share(name)} for name in self.runs}

    def claims(self) -> list[Claim]:
        """The aims: metrics, and traces that are not sampled."""
        every = [run for runs in self.runs.values() for run in runs]
        said = []
        for name in (METRICS, UNSAMPLED):
            share = self.share(name)
            text = f"{self.mix}: {name} cost {share:.1%} of throughput with a stub engine (aim {AIM_SHARE:.0%})"
            said.append(claim(text, every, held=share.median <= AIM_SHARE))
        return said


def _table(results: Sequence[_Result]) -> Table:
    rows = [
        (name, *(cell for result in results for cell in (str(result.us(name)), f"{result.share(name):.1%}")))
        for name in results[0].runs
    ]
    columns = ("", *(name for result in results for name in (f"{result.mix}, us of a core", "of throughput")))
    return Table("Cost of telemetry per article", columns, rows, "Scraped and exported every five seconds.")


def _plot(results: Sequence[_Result]) -> Plot:
    series = [bars(result.mix, list(result.runs), [result.us(name) for name in result.runs]) for result in results]
    return Plot("telemetry", "Cost of telemetry", "barh", "us of a core per article", "", series)
