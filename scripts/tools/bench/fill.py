"""`scripts/bench fill`: how much of a GPU the worker fills, Kafka to Kafka, without a GPU.

The device is a stand-in (`stand_in.py`); broker, articles, tokenizer and the rest of the worker are real.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from enricher.worker.runtime.watchdog import Watchdog
from enricher.worker.settings import Settings
from enricher.worker.wiring.loaded_tasks import Model, exempt_from_collection
from enricher.worker.wiring.workers import kafka_worker
from tools.bench.bench import Bench
from tools.bench.load import articles
from tools.bench.machine import Load, describe
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
    out: Annotated[Path | None, typer.Option(help="Folder for fill.json.")] = None,
    *,
    quick: Annotated[bool, typer.Option("--quick", help="A tiny run that only shows that everything works.")] = False,
) -> None:
    """Measure how much of a GPU one worker fills, Kafka to Kafka.

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
        write_figures(out / "fill.json", {"machine": describe(), "slower": slower, **filled.figures()})


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
        with calls_of(model.tokenizer, "tokenize") as tokenizations:
            meter = bench.meter()
            worker.run()
            load = meter.read()
    # Before anything is read, each thread runs a window of padding.
    turns = [turn for turn in device.turns if turn.began_s >= counters.began.at_s]
    return Filled(batch_tokens, device.cost, counters, turns, tokenizations, load)


@dataclass(frozen=True, slots=True)
class Filled:
    """One run: the batches of the device in order of time, and what the worker did."""

    batch_tokens: int
    cost: Cost
    counters: WatchedCounters
    turns: Sequence[Turn]
    tokenizations: Sequence[Call]
    load: Load

    @property
    def seconds(self) -> float:
        """From the first record read to the last commit."""
        return self.counters.ended.at_s - self.counters.began.at_s

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

    def _ratio(self, turns: Sequence[Turn], seconds: float) -> float:
        return sum(turn.tokens for turn in turns) / self.cost.rate(self.batch_tokens) / seconds

    def figures(self) -> dict[str, Any]:
        """All that is printed; ms are of a core for an article."""
        count, began, ended = self.counters.records, self.counters.began, self.counters.ended
        tokens = sum(turn.tokens for turn in self.turns)
        return {
            "of_bare_under_backlog": self.under_backlog,
            "of_bare_overall": self.overall,
            "batch_tokens": self.batch_tokens,
            "articles": count,
            "entities_per_article": self.counters.entities / count,
            "tokens_per_article": tokens / count,
            "articles_per_s": count / self.seconds,
            "tokens_per_s": tokens / self.seconds,
            "bare_tokens_per_s": self.cost.rate(self.batch_tokens),
            "loop_ms_per_article": 1000 * (ended.thread_s - began.thread_s) / count,
            "tokenizer_ms_per_article": 1000 * sum(call.cpu_s for call in self.tokenizations) / count,
            "worker_cores": (ended.process_s - began.process_s) / self.seconds,
            "broker_cores": self.load.broker_cores,
            "others_cores": self.load.others_cores,
        }


def outcome(filled: Filled) -> Outcome:
    """The table of a run."""
    figures = filled.figures()
    title = f"The worker over the bare device, an H100 {filled.cost.slower:g} times as slow"
    note = "Under backlog: from the first batch to the end of the last full one. ms: of a core for an article."
    return Outcome(figures, [Table.of(title, [{"": name, "measured": value} for name, value in figures.items()], note)])
