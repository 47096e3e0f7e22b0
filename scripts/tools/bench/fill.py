"""`scripts/bench fill`: how much of a GPU the worker fills, Kafka to Kafka, and why the device waits, without a GPU.

The device is a stand-in (`stand_in.py`); broker, articles, tokenizer and the rest of the worker are real.
"""

from __future__ import annotations

import logging
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any
from unittest.mock import patch

import typer

from enricher.worker.loop.pool import WorkerPool
from enricher.worker.records import Batch, BatchResult
from enricher.worker.runtime.watchdog import Watchdog
from enricher.worker.settings import Settings
from enricher.worker.wiring.loaded_tasks import Model, exempt_from_collection
from enricher.worker.wiring.workers import kafka_worker
from tools.bench.bench import Bench
from tools.bench.load import articles
from tools.bench.machine import describe
from tools.bench.outcome import Outcome, Table, print_outcome, write_figures
from tools.bench.stand_in import Cost, Device, Turn, stand_in_model
from tools.bench.watching import Call, WatchedCounters, calls_of
from tools.worker_parts import change, tasks_of

WINDOWS = {"max_window_tokens": 256, "overlap_tokens": 32}
"""The windows with which the device's times were measured."""
_TOKENS_PER_ARTICLE = 750
"""Tokens of a sample article that could begin an entity, for the density of labels."""
_QUICK_ARTICLES, _QUICK_BATCH_TOKENS = 40, 4096


def main(
    articles: Annotated[int, typer.Option(min=1, help="Articles that wait when the worker starts.")] = 5000,
    batch_tokens: Annotated[int, typer.Option(min=1024, help="batching.max_batch_tokens.")] = 32_768,
    entities: Annotated[int, typer.Option(min=0, help="About how many entities an article has.")] = 40,
    slower: Annotated[float, typer.Option(min=0.01, help="Times as slow as the H100 that was measured.")] = 1.0,
    out: Annotated[Path | None, typer.Option(help="Folder for fill.json and fill.png.")] = None,
    *,
    quick: Annotated[bool, typer.Option("--quick", help="A tiny run that only shows that everything works.")] = False,
) -> None:
    """Measure how much of a GPU one worker fills, Kafka to Kafka, and what the device waits for.

    The GPU is a stand-in that takes as long for a batch as an H100 did with a model of 24 layers of 1,024. Where tokenizer,
    loop and broker need more than this machine's cores at that rate, `--slower 3` shows how well the device is scheduled,
    and `--slower 1` how much processor time is missing.
    """
    logging.basicConfig(level=logging.ERROR)
    with ExitStack() as closing:
        bench = Bench(1, quick, lambda text: print(text, file=sys.stderr), closing)
        if quick:
            articles, batch_tokens = _QUICK_ARTICLES, _QUICK_BATCH_TOKENS
        exempt_from_collection()  # as a worker's process does
        filled = measure(bench, articles, batch_tokens, Cost(slower), entities)
    print_outcome(outcome(filled))
    if out:
        figures = {"machine": describe(), "slower": slower, **filled.figures()}
        write_figures(out / "fill.json", figures)
        if find_spec("matplotlib"):
            from tools.bench.drawing import save_timeline  # noqa: PLC0415  not everywhere

            save_timeline(filled, out / "fill.png")


def measure(bench: Bench, count: int, batch_tokens: int, cost: Cost, entities: int) -> Filled:
    """A backlog of `count` articles, published before the worker starts."""
    device = Device(cost)
    base = change(bench.settings, batching={**WINDOWS, "max_batch_tokens": batch_tokens})
    model = stand_in_model(base, device, density=entities / _TOKENS_PER_ARTICLE)
    with bench.topics() as topics:
        bench.say(f"publishing {count} articles")
        bench.publish(topics, articles("news", count), evenly=True)
        bench.say("running the worker")
        return _run(bench, model, bench.settings_for(topics, base), device, batch_tokens)


def _run(bench: Bench, model: Model, settings: Settings, device: Device, batch_tokens: int) -> Filled:
    with Watchdog() as watchdog:
        worker = kafka_worker(settings, tasks_of(settings, model), guard=watchdog.guard, until_caught_up=True)
        worker.counters = counters = WatchedCounters(bench.broker_pids)
        with (
            calls_of(model.tokenizer, "tokenize") as tokenizations,
            calls_of(worker.sink, "publish") as transactions,
            _submissions(worker.engine) as submitted,
        ):
            meter = bench.meter()
            worker.run()
            load = meter.read()
    began, ended = counters.began, counters.ended
    # Before its first batch, each thread ran a window of padding.
    turns = sorted((turn for turn in device.turns if turn.began_s >= submitted[0].at_s), key=lambda turn: turn.began_s)
    return Filled(
        batch_tokens=batch_tokens,
        cost=device.cost,
        articles=counters.records,
        entities=counters.entities,
        began_s=began.at_s,
        ended_s=ended.at_s,
        turns=turns,
        submitted=submitted,
        tokenizations=tokenizations,
        transactions=transactions,
        loop_cpu_s=ended.thread_s - began.thread_s,
        process_cpu_s=ended.process_s - began.process_s,
        broker_cores=load.broker_cores,
        others_cores=load.others_cores,
    )


@dataclass(frozen=True, slots=True)
class Submitted:
    """One batch when the loop gave it to the engine. `arrivals`: tokens by the time at which the scheduler got them."""

    at_s: float
    arrivals: dict[float, int]

    @property
    def ready_s(self) -> float:
        """When the scheduler had the last of its windows."""
        return max(self.arrivals)

    @property
    def tokens(self) -> int:
        return sum(self.arrivals.values())


@contextmanager
def _submissions(engine: WorkerPool[Batch, BatchResult]) -> Iterator[list[Submitted]]:
    """Record each batch that is submitted inside the context."""
    submitted: list[Submitted] = []
    submit = engine.submit

    def watched(batch: Batch) -> None:
        arrivals: Counter[float] = Counter()
        for window in batch.windows:
            arrivals[window.arrived_s] += len(window.ids)
        submitted.append(Submitted(time.monotonic(), dict(arrivals)))
        submit(batch)

    with patch.object(engine, "submit", watched):
        yield submitted


# ---- what was seen


@dataclass(frozen=True, slots=True, kw_only=True)
class Idle:
    """Seconds for which the device had nothing to do, by cause."""

    first: float = 0.0
    """From the first record read to the first batch."""
    windows: float = 0.0
    """The windows of the next batch were not there yet: reading, decoding or the tokenizer was too slow."""
    transaction: float = 0.0
    """They were there, and the loop was in a transaction."""
    loop: float = 0.0
    """They were there, and the loop did something else."""
    handover: float = 0.0
    """The batch was with the engine's threads, which had not begun it."""
    last: float = 0.0
    """From the end of the last batch to the last commit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Filled:
    """One run. Moments are monotonic seconds."""

    batch_tokens: int
    cost: Cost
    articles: int
    entities: int
    began_s: float
    """The first record was read."""
    ended_s: float
    """The last transaction was committed."""
    turns: Sequence[Turn]
    submitted: Sequence[Submitted]
    tokenizations: Sequence[Call]
    transactions: Sequence[Call]
    loop_cpu_s: float
    process_cpu_s: float
    broker_cores: float
    others_cores: float

    @property
    def seconds(self) -> float:
        return self.ended_s - self.began_s

    @property
    def full(self) -> Sequence[Turn]:
        """The batches under backlog: to the last one that is full but for a window."""
        least = self.batch_tokens - WINDOWS["max_window_tokens"]
        last = max((place for place, turn in enumerate(self.turns) if turn.tokens > least), default=len(self.turns) - 1)
        return self.turns[: last + 1]

    @property
    def under_backlog(self) -> float:
        """The rate over that of the bare device in full batches, from the first batch to the end of the last full one."""
        return self._ratio(self.full, self.full[-1].ended_s - self.full[0].began_s)

    @property
    def overall(self) -> float:
        """The rate over that of the bare device in full batches, from the first read to the last commit."""
        return self._ratio(self.turns, self.seconds)

    @property
    def busy(self) -> float:
        """The share of the time, from the first read to the last commit, for which the device computes."""
        return sum(turn.ended_s - turn.began_s for turn in self.turns) / self.seconds

    def _ratio(self, turns: Sequence[Turn], seconds: float) -> float:
        return sum(turn.tokens for turn in turns) / self.cost.rate(self.batch_tokens) / seconds

    def idle(self) -> Idle:
        """Every second without a batch on the device has one cause; a batch is the one submitted in the same place."""
        found = {"windows": 0.0, "transaction": 0.0, "loop": 0.0, "handover": 0.0}
        for before, turn, batch in zip(self.turns, self.turns[1:], self.submitted[1:], strict=False):
            ready_s, at_s = (min(max(each, before.ended_s), turn.began_s) for each in (batch.ready_s, batch.at_s))
            committing_s = sum(overlap(call.began_s, call.ended_s, ready_s, at_s) for call in self.transactions)
            found["windows"] += ready_s - before.ended_s
            found["transaction"] += committing_s
            found["loop"] += at_s - ready_s - committing_s
            found["handover"] += turn.began_s - at_s
        first, last = self.turns[0].began_s - self.began_s, self.ended_s - self.turns[-1].ended_s
        return Idle(first=first, last=last, **found)

    def queued(self) -> tuple[list[float], list[int]]:
        """The tokens that wait in the scheduler: moments, and how many from then on."""
        changes: Counter[float] = Counter()
        for batch in self.submitted:
            changes.update(batch.arrivals)
            changes[batch.at_s] -= batch.tokens
        moments, tokens = sorted(changes), list[int]()
        for moment in moments:
            tokens.append(changes[moment] + (tokens[-1] if tokens else 0))
        return moments, tokens

    def figures(self) -> dict[str, Any]:
        tokens = sum(turn.tokens for turn in self.turns)
        return {
            "batch_tokens": self.batch_tokens,
            "articles": self.articles,
            "entities_per_article": self.entities / self.articles,
            "tokens_per_article": tokens / self.articles,
            "articles_per_s": self.articles / self.seconds,
            "tokens_per_s": tokens / self.seconds,
            "bare_tokens_per_s": self.cost.rate(self.batch_tokens),
            "of_bare_under_backlog": self.under_backlog,
            "of_bare_overall": self.overall,
            "busy_share": self.busy,
            "seconds": self.seconds,
            "idle_s": self.idle(),
            "batches": len(self.turns),
            "transactions": len(self.transactions),
            "transaction_s": sum(call.ended_s - call.began_s for call in self.transactions),
            "loop_ms_per_article": 1000 * self.loop_cpu_s / self.articles,
            "tokenizer_ms_per_article": 1000 * sum(call.cpu_s for call in self.tokenizations) / self.articles,
            "worker_cores": self.process_cpu_s / self.seconds,
            "broker_cores": self.broker_cores,
            "others_cores": self.others_cores,
        }


def overlap(began_s: float, ended_s: float, other_began_s: float, other_ended_s: float) -> float:
    """The seconds that two intervals share."""
    return max(0.0, min(ended_s, other_ended_s) - max(began_s, other_began_s))


def outcome(filled: Filled) -> Outcome:
    """The tables of a run."""
    figures = filled.figures()
    title = f"The worker over the bare device, an H100 {filled.cost.slower:g} times as slow"
    measured = [{"": name, "measured": value} for name, value in figures.items() if name != "idle_s"]
    note = "Under backlog: from the first batch to the end of the last full one. ms: of a core for an article."
    waits = Table.of(f"The device waits, of {filled.seconds:.2f} s", [asdict(filled.idle())])
    return Outcome(figures, (Table.of(title, measured, note), waits))
