"""Runs of a worker from memory to memory: for an iterator of articles, in its own thread, and for a list of records."""

from __future__ import annotations

import itertools
import logging
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Generic, TypeVar

from enricher.errors import InvalidArticle, Stalled
from enricher.worker.articles import encode_record, letter_for
from enricher.worker.files import FiniteSource
from enricher.worker.files.exchange import Answer, AnswerSink, Exchange
from enricher.worker.loop.loop import Worker
from enricher.worker.loop.pool import CLOSE_S
from enricher.worker.records import DeadLetter, EnrichedRecord, Partition, RawRecord
from enricher.worker.runtime.watchdog import Watchdog
from enricher.worker.settings import Settings
from enricher.worker.wiring.formats import ReaderOf, article_reader
from enricher.worker.wiring.loaded_tasks import Tasks
from enricher.worker.wiring.workers import file_worker, local_worker

Item = TypeVar("Item")
Written = TypeVar("Written")

_PER_ANSWER = 2
"""Articles that are taken before a ready answer is handed out. If only one was, a caller as fast as the worker would
never let the worker get ahead."""

_numbers = itertools.count()

log = logging.getLogger(__name__)


class Run(Iterator[Answer[Written]], Generic[Item, Written]):
    """A worker that runs over `items`; iterating gives one answer for each item, in their order.

    `value_of` turns an item into the bytes of an article; it may raise InvalidArticle. Items are taken in the thread that
    asks for answers, because an iterator may belong to it; while the iterator blocks, no answer comes. An error of the
    iterator, of `value_of` or of the worker is raised after the answers before it.

    The first call starts the threads. The caller calls `close`, which another thread may do as well.
    """

    def __init__(
        self,
        settings: Settings,
        tasks: Tasks,
        items: Iterator[Item],
        *,
        value_of: Callable[[Item], bytes],
        write: Callable[[EnrichedRecord], Written],
    ) -> None:
        self._settings = settings
        self._tasks = tasks
        self._items = items
        self._value_of = value_of
        self._write = write
        self._error: BaseException | None = None
        self._closed = False
        self._process = os.getpid()
        self._exchange = Exchange[Written](Partition("articles", next(_numbers)))
        self._worker: Worker | None = None
        # A daemon, so that a hung run of the model does not keep the process alive.
        self._thread = threading.Thread(target=self._work, name="enricher", daemon=True)
        self._started = False

    def __next__(self) -> Answer[Written]:
        """The next answer. Blocks. Raises RuntimeError once the run was closed, and in a forked process."""
        if os.getpid() != self._process:
            raise RuntimeError(
                "this iterator belongs to the process that was forked: enrich in the process that loaded"
            )
        if not (self._started or self._closed):
            self._started = True
            self._thread.start()
        exchange, taken = self._exchange, 0
        while not self._closed:
            over = exchange.over  # read before the answers are, so that no answer comes in between
            if taken < _PER_ANSWER and exchange.has_room():
                taken += 1
                try:
                    exchange.put(self._value_of(next(self._items)))
                except InvalidArticle as error:
                    exchange.refuse(letter_for(error))
                except Exception as error:  # noqa: BLE001  the end, or the caller's own error, raised again in its place
                    self._error = None if isinstance(error, StopIteration) else error
                    exchange.end()
            elif answer := exchange.take():
                return answer
            elif over:
                raise StopIteration if self._error is None else self._error
            elif exchange.has_room():
                taken = 0
            else:
                exchange.wait()
        raise RuntimeError("closed while articles were being enriched")

    def close(self) -> None:
        """End the run and its threads, whether or not all answers were taken. Waits for the batches on the device."""
        self._closed = True
        if os.getpid() != self._process:
            return
        if self._worker:
            self._worker.stop()
        if self._thread.ident is None:  # it has not begun, and ends at once if it does
            return
        close_s = self._settings.worker.drain_timeout_s + 2 * CLOSE_S
        self._thread.join(close_s)
        if self._thread.is_alive():
            log.warning("the worker did not end within %g s and is left behind", close_s)

    def _work(self) -> None:
        """Build the worker and run it, in this thread, because Ctrl-C interrupts only the main one."""
        try:
            exchange, watchdog = self._exchange, Watchdog(lambda message: self._fail(Stalled(message)))
            sink = AnswerSink(self._write, exchange.hand_over, committed=exchange.note_committed)
            worker = file_worker(self._settings, self._tasks, exchange, sink, guard=watchdog.guard)
            self._worker = worker
            if self._closed:
                worker.stop()
            with watchdog:
                worker.run()
        except BaseException as error:  # noqa: BLE001  raised again in the thread that asks for answers
            self._fail(error)
        self._exchange.finish()

    def _fail(self, error: BaseException) -> None:
        self._error = error
        self._exchange.finish()


_PARTITION = Partition("recomputed", 0)


def recompute(
    settings: Settings, tasks: Tasks, records: Sequence[RawRecord], *, reader: ReaderOf | None = None
) -> list[bytes | None]:
    """The JSON of the enriched record of each input, in order; None for an input that becomes a dead letter.

    `reader` reads the articles; by default it is that of the worker for the records of its topic.
    """
    source = _RecordSource(records)
    answers: list[Answer[bytes]] = []
    # Not lines, because a record with a whole article may contain line ends.
    sink = AnswerSink(encode_record, answers.extend, committed=source.note_committed)
    with Watchdog() as watchdog:
        chosen = reader or partial(article_reader, settings)
        local_worker(settings, tasks, source, sink, reader=chosen, guard=watchdog.guard).run()
    return [None if isinstance(answer.written, DeadLetter) else answer.written for answer in answers]


class _RecordSource(FiniteSource):
    """Delivers records as if they were in one partition, with their own keys and headers."""

    def __init__(self, records: Sequence[RawRecord]) -> None:
        super().__init__(_PARTITION)
        self._records = [
            replace(record, partition=_PARTITION, offset=number, leader_epoch=None)
            for number, record in enumerate(records)
        ]
        self._ended = not self._records

    def _next_records(self, limit: int, timeout_s: float) -> Sequence[RawRecord]:
        del timeout_s  # they are here already
        records = self._records[self._position : self._position + limit]
        self._position = self._delivered_end = self._position + len(records)
        self._ended = self._position == len(self._records)
        return records
