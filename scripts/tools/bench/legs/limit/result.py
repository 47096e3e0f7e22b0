"""The report of the leg `limit`: the worker's rate over the bare one, and where the rest of the time went."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from enricher.worker.build.loaded_model import Model
from enricher.worker.inference.device.cores import available_cores
from enricher.worker.records import Batch
from tools.bench.outcome import Claim, Plot, Table
from tools.bench.repeating import Run, Spread, bars, claim, rates
from tools.bench.watching import Call, Work

AIMS = {"fp32": 0.97, "auto": 0.93}


@dataclass(frozen=True, slots=True)
class ThreadTime:
    """Thread seconds by use. `between`: no run, between a thread's first and last run; `held_up`: running without a core."""

    computing: float
    held_up: float
    between: float
    start_and_end: float

    @property
    def running(self) -> float:
        """Time in runs of the model, wherever it computes."""
        return self.computing + self.held_up

    @property
    def active_share(self) -> float:
        """The share of the time with a backlog, that is without start and end."""
        active = self.running + self.between
        return active / (active + self.start_and_end)

    @classmethod
    def of(cls, runs: Sequence[Call], concurrency: int, seconds: float) -> ThreadTime:
        """From the model's calls during `seconds` of wall time."""
        running = sum(call.ended_s - call.began_s for call in runs)
        computing = sum(call.cpu_s for call in runs)
        own = [[call for call in runs if call.thread == thread] for thread in {call.thread for call in runs}]
        active = sum(max(call.ended_s for call in each) - min(call.began_s for call in each) for each in own)
        return cls(computing, running - computing, active - running, concurrency * seconds - active)


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

    def thread_ms(self, runs: Sequence[Run], part: str) -> float:
        """Median milliseconds of a thread per article."""
        return Spread.of([1000 * getattr(run.detail["threads"], part) / run.detail["count"] for run in runs]).median

    @property
    def parts(self) -> tuple[dict[str, str], dict[str, str]]:
        """Labels of the parts of thread time and CPU time. Only ONNX Runtime on a CPU computes on the calling thread."""
        on_threads = self.case.model.prepared.variant.runtime == "cpu"
        return (
            (_THREAD_PARTS, _PROCESSOR_PARTS) if on_threads else (_THREAD_PARTS_ELSEWHERE, _PROCESSOR_PARTS_ELSEWHERE)
        )

    def processor_ms(self, part: str) -> float:
        """Median milliseconds of a core per article."""
        return Spread.of([1000 * getattr(run.detail["work"], part) / run.detail["count"] for run in self.worker]).median

    def figures(self) -> dict[str, Any]:
        worker = self.worker[0].detail["work"].counters
        thread_parts, processor_parts = self.parts
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
            "thread_ms_per_article": {
                who: {part: self.thread_ms(runs, part) for part in thread_parts}
                for who, runs in (("bare", self.bare), ("worker", self.worker))
            },
            "worker_processor_ms_per_article": {part: self.processor_ms(part) for part in processor_parts},
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


_THREAD_PARTS = {
    "computing": "the model, on the processor",
    "held_up": "in a run, waiting for a core or for the interpreter",
    "between": "no run, between its first and its last run",
    "start_and_end": "before its first run and after its last",
}
_THREAD_PARTS_ELSEWHERE = {
    "running": "in a run of the model, which computes on its own threads",
    "between": _THREAD_PARTS["between"],
    "start_and_end": _THREAD_PARTS["start_and_end"],
}
_PROCESSOR_PARTS = {
    "model_s": "the model",
    "tokenizer_s": "the tokenizer",
    "loop_s": "the loop",
    "client_s": "the Kafka client's threads, and the hand-over to the worker pool",
    "broker_s": "the broker",
}
_PROCESSOR_PARTS_ELSEWHERE = {
    "tokenizer_s": _PROCESSOR_PARTS["tokenizer_s"],
    "loop_s": _PROCESSOR_PARTS["loop_s"],
    "model_and_client_s": "the model's own threads, the Kafka client's, and the hand-over to the worker pool",
    "broker_s": _PROCESSOR_PARTS["broker_s"],
}


def rates_table(results: Sequence[Result]) -> Table:
    rows = [
        (
            f"{result.case.name} ({result.case.model.prepared.variant.name})",
            f"{rates(result.bare)}",
            f"{rates(result.worker)}",
            f"{result.efficiency()}",
            f"{result.broker_cores}",
            f"{result.efficiency(without_broker=True)}",
            f"{result.efficiency(without_broker=True, without_ends=True)}",
        )
        for result in results
    ]
    note = (
        "Median, lowest and highest. Without the broker: worker / (bare x cores that the broker left / cores); under "
        "backlog: the same from the threads' first runs to the ends of their last. A ratio above 1 only says that the "
        "difference is within the noise of the machine."
    )
    columns = (
        "variant",
        "bare, articles/s",
        "worker, articles/s",
        "worker / bare",
        "broker, cores",
        "without the broker",
        "and under backlog",
    )
    return Table("The worker over its bare model", columns, rows, note)


def thread_table(result: Result) -> Table:
    rows = []
    for part, words in result.parts[0].items():
        bare, worker = result.thread_ms(result.bare, part), result.thread_ms(result.worker, part)
        rows.append((words, f"{bare:.2f}", f"{worker:.2f}", f"{worker - bare:+.2f}"))
    articles_, tokens = len(result.case.values), result.case.batch_tokens
    note = f"{articles_} articles; bare in batches of {tokens} tokens. The rows add up to the threads' whole time."
    return Table(
        f"{result.case.name}: where a thread's time goes, ms per article", ("", "bare", "worker", "more"), rows, note
    )


def processor_table(result: Result) -> Table:
    rows = [(words, f"{result.processor_ms(part):.2f}") for part, words in result.parts[1].items()]
    return Table(f"{result.case.name}: CPU time by thread, ms of a core per article", ("", "worker"), rows)


def plot_of(results: Sequence[Result]) -> Plot:
    names = [result.case.name for result in results]
    series = [
        bars("bare", names, [rates(result.bare) for result in results]),
        bars("worker", names, [rates(result.worker) for result in results]),
    ]
    return Plot("limit", "The worker, Kafka to Kafka, and its bare model", "bars", "variant", "articles/s", series)
