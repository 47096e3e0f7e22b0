"""The threads of a worker: those that run the model, and those that tokenise."""

from __future__ import annotations

from typing import TYPE_CHECKING

from enricher.worker.inference.device.cores import available_cores
from enricher.worker.loop.pool import WorkerPool

if TYPE_CHECKING:
    from enricher.worker.build.loaded_model import Model
    from enricher.worker.loop.ports import Tokenized
    from enricher.worker.records import Batch, BatchResult, Ticket
    from enricher.worker.runtime.wakeup import Wakeup
    from enricher.worker.settings import Settings


def engine_pool(model: Model, wakeup: Wakeup) -> WorkerPool[Batch, BatchResult]:
    """The threads that run batches on the model.

    One batch waits for each thread, so that every thread has a next one while the loop is in a transaction.
    """
    return WorkerPool(
        model.engine.run,
        threads=model.concurrency,
        waiting=model.concurrency,
        wake=wakeup.set,
        name="engine",
        begin=model.engine.open_thread,
    )


def tokenizer_pool(settings: Settings, model: Model, wakeup: Wakeup) -> WorkerPool[list[Ticket], Tokenized]:
    """The threads that tokenise the articles of tickets."""

    def tokenize(tickets: list[Ticket]) -> Tokenized:
        articles = [ticket.article for ticket in tickets if ticket.article is not None]
        return [*zip(tickets, model.tokenizer.tokenize(articles), strict=True)]

    threads = settings.worker.tokenizer_threads or max(1, min(4, available_cores() // 2))
    return WorkerPool(tokenize, threads=threads, waiting=threads, wake=wakeup.set, name="tokenizer")
