"""The worker between an iterator of articles and an iterator of answers, in its own thread."""

from __future__ import annotations

import itertools
import logging
import os
import threading
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from enricher.errors import InvalidArticle, Stalled
from enricher.worker.articles import letter_for
from enricher.worker.build.loaded_tasks import Tasks
from enricher.worker.build.workers import file_worker
from enricher.worker.files.exchange import Answer, AnswerSink, Exchange
from enricher.worker.loop.loop import Worker
from enricher.worker.loop.pool import CLOSE_S
from enricher.worker.records import EnrichedRecord, Partition
from enricher.worker.runtime.watchdog import Watchdog
from enricher.worker.settings import Settings

Item = TypeVar("Item")
Written = TypeVar("Written")

_PER_ANSWER = 2
"""Articles that are taken before a ready answer is handed out. With one, a caller as fast as the worker would never let it
get ahead."""

_numbers = itertools.count()

log = logging.getLogger(__name__)


class Run(Iterator[Answer[Written]], Generic[Item, Written]):
    """A worker that runs over `items`; iterating gives one answer for each, in their order.

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
