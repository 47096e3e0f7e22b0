"""Records when each article passes the points inside the worker, with clocks around the worker's functions.

Wall time, for one article at a time; `stages` measures CPU time of the loop's thread instead.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from unittest.mock import patch

from enricher.worker.build.loaded_model import Model
from enricher.worker.kafka.sink import TransactionalSink
from enricher.worker.kafka.source import KafkaSource
from enricher.worker.kafka.topicwatch import TopicWatch
from enricher.worker.kafka.transaction import Stopwatch, Transaction
from enricher.worker.loop.pool import WorkerPool
from enricher.worker.records import Batch, Release, Ticket, Window
from enricher.worker.rules.batching import LengthBucketScheduler
from enricher.worker.rules.packing import ArrivalScheduler

PATCHED: tuple[tuple[type, str], ...] = (
    (KafkaSource, "poll"),
    (WorkerPool, "submit"),
    (LengthBucketScheduler, "add"),
    (ArrivalScheduler, "add"),
    (Ticket, "finish"),
    (TransactionalSink, "publish"),
    (Transaction, "_hand_over"),
    (Transaction, "_flush"),
    (TopicWatch, "confirm"),
    (Stopwatch, "done"),
)
"""The methods with a clock, besides the model's `run` and `tokenize`."""
Watching = Generator[None, Any, None]
"""It yields where the method is called, and is sent what that returns."""


@dataclass(slots=True)
class BatchTimes:
    """When a batch was submitted, and when its run began and ended. All times are monotonic."""

    submitted_s: float
    began_s: float = 0.0
    ended_s: float = 0.0


@dataclass(slots=True)
class TransactionTimes:
    """When each step of a transaction was over."""

    began_s: float
    produced_s: float = 0.0
    """Every record is encoded and with the client."""
    flushed_s: float = 0.0
    confirmed_s: float = 0.0
    """The topics are still the same ones."""
    offsets_s: float = 0.0
    committed_s: float = 0.0


@dataclass(slots=True)
class Passage:
    """One article's way through the worker. 0.0 where it was not seen."""

    polling_s: float
    """When the poll that returned it began."""
    polled_s: float
    to_tokenizer_s: float = 0.0
    tokenizing_s: float = 0.0
    tokenized_s: float = 0.0
    queued_s: float = 0.0
    """When its first window came to the scheduler."""
    batches: list[BatchTimes] = field(default_factory=list)
    finished_s: float = 0.0
    transaction: TransactionTimes = field(default_factory=lambda: TransactionTimes(0.0))


class Timeline:
    """The passages by key; those of the last reading, if an article is read again."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.passages: dict[bytes | None, Passage] = {}
        self._clock = clock
        self._articles: dict[int, Passage] = {}
        """Articles by their `id()`; a ticket keeps its article alive until it is tokenised."""
        self._batches: dict[int, BatchTimes] = {}
        """Batches by their `id()`, until their runs begin."""
        self._transaction = TransactionTimes(0.0)

    @contextmanager
    def watching(self, model: Model) -> Iterator[None]:
        """Put the clocks on. The worker must be made inside the context, because its pools bind methods of the model."""
        watchers: dict[str, Callable[..., Watching]] = {
            "poll": self._poll,
            "submit": self._submit,
            "add": self._add,
            "finish": self._finish,
            "publish": self._publish,
            "_hand_over": partial(self._step, "produced_s"),
            "_flush": partial(self._step, "flushed_s"),
            "confirm": partial(self._step, "confirmed_s"),
            "done": self._done,
            "run": self._run,
            "tokenize": self._tokenize,
        }
        with ExitStack() as patched:
            for owner, name in (*PATCHED, (model.engine, "run"), (model.tokenizer, "tokenize")):
                patched.enter_context(patch.object(owner, name, _around(getattr(owner, name), watchers[name])))
            yield

    def _of(self, ticket: Ticket) -> Passage:
        return self.passages[ticket.raw.key]

    # ---- each takes the arguments of a method, and reads the clock before and after it

    def _poll(self, _source: KafkaSource, _limit: int, _timeout_s: float) -> Watching:
        began_s = self._clock()
        records = yield
        ended_s = self._clock()
        self.passages.update({record.key: Passage(began_s, ended_s) for record in records})

    def _submit(self, _pool: WorkerPool[Any, Any], item: list[Ticket] | Batch) -> Watching:
        now_s = self._clock()
        if isinstance(item, Batch):
            times = self._batches[id(item)] = BatchTimes(now_s)
            for passage in {id(window.ticket): self._of(window.ticket) for window in item.windows}.values():
                passage.batches.append(times)
        else:
            for ticket in item:
                passage = self._articles[id(ticket.article)] = self._of(ticket)
                passage.to_tokenizer_s = now_s
        yield

    def _tokenize(self, articles: Sequence[Any]) -> Watching:
        began_s = self._clock()
        yield
        ended_s = self._clock()
        for article in articles:
            passage = self._articles.pop(id(article))
            passage.tokenizing_s, passage.tokenized_s = began_s, ended_s

    def _add(self, _scheduler: object, windows: Sequence[Window]) -> Watching:
        now_s = self._clock()
        for window in windows:
            passage = self._of(window.ticket)
            passage.queued_s = passage.queued_s or now_s
        yield

    def _run(self, batch: Batch) -> Watching:
        times = self._batches.pop(id(batch))
        times.began_s = self._clock()
        yield
        times.ended_s = self._clock()

    def _finish(self, ticket: Ticket, _outcome: object) -> Watching:
        yield
        self._of(ticket).finished_s = self._clock()

    def _publish(self, _sink: TransactionalSink, release: Release) -> Watching:
        times = self._transaction = TransactionTimes(self._clock())
        yield
        for ticket in release.tickets:
            self._of(ticket).transaction = times

    def _done(self, _stopwatch: Stopwatch, step: str) -> Watching:
        yield
        if name := {"send_offsets": "offsets_s", "commit": "committed_s"}.get(step):
            setattr(self._transaction, name, self._clock())

    def _step(self, name: str, *_arguments: object) -> Watching:
        yield
        setattr(self._transaction, name, self._clock())


def _around(function: Callable[..., Any], watcher: Callable[..., Watching]) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:  # noqa: ANN401  whatever the function takes and gives
        watching = watcher(*arguments)
        next(watching)
        answer = function(*arguments)
        with suppress(StopIteration):
            watching.send(answer)
        return answer

    return call
