"""The threads of a worker: those that run the models, and those that tokenise. All passes share them."""

from __future__ import annotations

from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING

from enricher.worker.inference.device.cores import available_cores
from enricher.worker.loop.pool import WorkerPool

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from enricher.worker.build.loaded_model import Model
    from enricher.worker.loop.ports import Tokenized
    from enricher.worker.records import Batch, BatchResult, Part
    from enricher.worker.runtime.wakeup import Wakeup
    from enricher.worker.settings import Settings

_pass_of = attrgetter("pass_index")


def engine_pool(models: Sequence[Model], wakeup: Wakeup, *, ahead: bool) -> WorkerPool[Batch, BatchResult]:
    """The threads that run each batch on the model of its pass.

    `ahead`: one batch waits for each thread, so that every thread has a next one while the loop is in a transaction. Without
    it, an urgent batch waits only for batches that are running.
    """
    engines = [model.engine for model in models]

    def begin() -> None:
        for engine in engines:
            engine.open_thread()

    def run(batch: Batch) -> BatchResult:
        return engines[batch.pass_index].run(batch)

    count = models[0].concurrency
    return WorkerPool(
        engines[0].run if len(engines) == 1 else run,
        threads=count,
        waiting=count if ahead else 0,
        wake=wakeup.set,
        name="engine",
        begin=begin,
    )


def padded_tokens_of(models: Sequence[Model]) -> Callable[[Batch], int]:
    """The function that says how many tokens the device computes for a batch."""
    engines = [model.engine for model in models]
    return lambda batch: engines[batch.pass_index].padded_tokens(batch)


def tokenizer_pool(settings: Settings, models: Sequence[Model], wakeup: Wakeup) -> WorkerPool[list[Part], Tokenized]:
    """The threads that tokenise the article of each part with the tokenizer of its pass."""
    tokenizers = [model.tokenizer for model in models]

    def tokenize(parts: list[Part]) -> Tokenized:
        done: list[Tokenized] = []
        for index, group in groupby(sorted(parts, key=_pass_of), key=_pass_of):
            same = [*group]
            articles = [part.ticket.article for part in same if part.ticket.article is not None]
            done.append([*zip(same, tokenizers[index].tokenize(articles), strict=True)])
        return done[0] if len(done) == 1 else [pair for each in done for pair in each]

    threads = settings.worker.tokenizer_threads or max(1, min(4, available_cores() // 2))
    return WorkerPool(tokenize, threads=threads, waiting=threads, wake=wakeup.set, name="tokenizer")
