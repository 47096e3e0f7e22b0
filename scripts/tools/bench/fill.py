"""`scripts/bench fill`: how much of a GPU the worker fills, Kafka to Kafka, without a GPU.

The device is a stand-in: it takes as long as a GPU did, and its labels come from a hash. Everything around it is the
worker's own: the engine with its checks, the arrays of the packed float16 variant, two threads. Broker and articles are
real, too. The stand-in sleeps, so it needs no processor time, and another thread has the interpreter meanwhile.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import typer

from enricher.worker.inference.device.hardware import default_concurrency
from enricher.worker.inference.device.sessions import Feeds, Session
from enricher.worker.inference.graph.packed_cuda import PackedFloat16
from enricher.worker.inference.run.advice import advice_for
from enricher.worker.inference.run.engine import OnnxEngine
from enricher.worker.inference.run.model import PreparedModel, open_model
from enricher.worker.inference.tokenizer.article_tokenizer import ArticleTokenizer
from enricher.worker.records import ModelCard
from enricher.worker.settings import Settings
from enricher.worker.wiring.loaded_tasks import Model, exempt_from_collection
from tools.bench.bench import Bench
from tools.bench.load import articles
from tools.bench.outcome import Outcome, Table, print_outcome, write_figures
from tools.bench.runs import describe
from tools.bench.watching import Work, work_off
from tools.worker_parts import change

_POINTS = ((8_192, 0.0123), (32_768, 0.047))
"""Tokens and seconds of a batch: a model of 24 layers of 1,024 in float16 on an H100, two threads, windows of 256."""
_MULTIPLIER, _SPREAD = 2_654_435_761, 1 << 20
"""Knuth's multiplier, and how many values the hash has."""


@dataclass(frozen=True, slots=True)
class Cost:
    """The time of a batch: linear through the two measured points, `slower` times as long."""

    slower: float = 1.0

    def seconds(self, tokens: int) -> float:
        (fewer, less_s), (more, more_s) = _POINTS
        per_token_s = (more_s - less_s) / (more - fewer)
        return self.slower * (less_s + (tokens - fewer) * per_token_s)

    def rate(self, batch_tokens: int) -> float:
        """Tokens per second of the bare device, in batches of this size."""
        return batch_tokens / self.seconds(batch_tokens)


@dataclass(frozen=True, slots=True)
class Turn:
    """One batch on the device: its tokens, and its begin and end (monotonic)."""

    tokens: int
    began_s: float
    ended_s: float


class Device:
    """Computes one batch at a time, in the order of the calls; each call blocks until its batch is done."""

    def __init__(self, cost: Cost) -> None:
        self.cost = cost
        self.turns: list[Turn] = []
        self._lock = threading.Lock()
        self._free_s = 0.0

    def compute(self, tokens: int) -> None:
        with self._lock:
            began_s = max(time.monotonic(), self._free_s)
            self._free_s = ended_s = began_s + self.cost.seconds(tokens)
            self.turns.append(Turn(tokens, began_s, ended_s))
        time.sleep(max(0.0, ended_s - time.monotonic()))


@dataclass(frozen=True, slots=True)
class _Session:
    """A token is the beginning of an entity if a hash of it and its neighbour is among the lowest `density`."""

    device: Device
    density: float
    labels: npt.NDArray[np.int32]
    """The labels that begin an entity."""

    def run(self, _outputs: Sequence[str], feeds: Feeds, /) -> list[npt.NDArray[Any]]:
        ids = feeds["input_ids"]
        self.device.compute(len(ids))
        mixed = ids.astype(np.uint64) + np.roll(ids, 1).astype(np.uint64) * np.uint64(31)
        hashed = (mixed * np.uint64(_MULTIPLIER) >> np.uint64(7)) % np.uint64(_SPREAD)
        labels = np.where(hashed < self.density * _SPREAD, self.labels[hashed % np.uint64(len(self.labels))], 0)
        return [labels.astype(np.int32), np.full(len(ids), 0.9, np.float32)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Prepared(PreparedModel):
    """A model whose graph is never built."""

    session: Session

    def open_session(self, *, threads_per_run: int, concurrency: int) -> Session:
        del threads_per_run, concurrency
        return self.session


def stand_in_model(settings: Settings, device: Device, *, density: float) -> Model:
    """The configured model's tokenizer and labels, with this device. `density`: the share of tokens that begin an entity."""
    checkpoint = open_model(settings.model.source)
    assert checkpoint.labels[0] == "O", "label 0 is no entity"
    begins = [number for number, label in enumerate(checkpoint.labels) if label.startswith("B-")]
    variant = PackedFloat16()
    card = ModelCard(checkpoint.name, checkpoint.digest, variant.precision)
    session = _Session(device, density, np.array(begins, np.int32))
    prepared = _Prepared(Path(), checkpoint, card, "cuda", variant, session=session)
    tokenizer = ArticleTokenizer(checkpoint)
    concurrency = settings.model.concurrency or default_concurrency(prepared.device)
    engine = OnnxEngine(prepared, threads_per_run=1, pad_id=tokenizer.pad_id, concurrency=concurrency)
    advice = advice_for(checkpoint.folder, tokenizer.max_window_tokens)
    return Model(prepared, tokenizer, engine, advice, concurrency)


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
        work = work_off(bench, model, bench.settings_for(topics, base))
    # Before anything is read, each thread runs a window of padding.
    turns = [turn for turn in device.turns if turn.began_s >= work.counters.began.at_s]
    return Filled(batch_tokens, cost, work, turns)


@dataclass(frozen=True, slots=True)
class Filled:
    """One run: the batches of the device in order of time, and what the worker did."""

    batch_tokens: int
    cost: Cost
    work: Work
    turns: Sequence[Turn]

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
        return self._ratio(self.turns, self.work.seconds)

    def _ratio(self, turns: Sequence[Turn], seconds: float) -> float:
        return sum(turn.tokens for turn in turns) / self.cost.rate(self.batch_tokens) / seconds

    def figures(self) -> dict[str, Any]:
        """All that is printed; ms are of a core for an article."""
        work = self.work
        count, seconds = work.counters.records, work.seconds
        tokens = sum(turn.tokens for turn in self.turns)
        return {
            "of_bare_under_backlog": self.under_backlog,
            "of_bare_overall": self.overall,
            "batch_tokens": self.batch_tokens,
            "articles": count,
            "entities_per_article": work.counters.entities / count,
            "tokens_per_article": tokens / count,
            "articles_per_s": count / seconds,
            "tokens_per_s": tokens / seconds,
            "bare_tokens_per_s": self.cost.rate(self.batch_tokens),
            "loop_ms_per_article": 1000 * work.loop_s / count,
            "tokenizer_ms_per_article": 1000 * work.tokenizer_s / count,
            "worker_cores": (work.rest_s + work.loop_s + work.tokenizer_s) / seconds,
            "broker_cores": work.load.broker_cores,
            "others_cores": work.load.others_cores,
        }


def outcome(filled: Filled) -> Outcome:
    """The table of a run."""
    figures = filled.figures()
    title = f"The worker over the bare device, an H100 {filled.cost.slower:g} times as slow"
    note = "Under backlog: from the first batch to the end of the last full one. ms: of a core for an article."
    return Outcome(figures, [Table.of(title, [{"": name, "measured": value} for name, value in figures.items()], note)])
