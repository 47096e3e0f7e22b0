"""A few threads that run one function on items, polled by one owner: the engine's threads and the tokenizer's pool.

Bounded and never blocking for the owner. Knows nothing of models. The standard pool is not used because its threads are
not daemons and are joined at exit, so that one hung run would keep the process alive for ever.
"""

from __future__ import annotations

import queue
import threading
import time
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

Item = TypeVar("Item")
Result = TypeVar("Result")

CLOSE_S = 5.0
"""How long `close` waits for runs to end: many times a run. A thread still inside ONNX Runtime when the interpreter ends
can crash the process on its way out, so it is worth waiting for one that is merely busy."""


class WorkerPool(Generic[Item, Result]):
    """Runs `run` on submitted items in `threads` threads. Methods are for one owner thread; only `close` may block.

    `wake` is called in the thread's own thread after each result is in: it must be safe there and must not raise. So must
    `begin`, which each thread calls before its first item.
    """

    def __init__(
        self,
        run: Callable[[Item], Result],
        *,
        threads: int,
        waiting: int,
        wake: Callable[[], None],
        name: str,
        begin: Callable[[], None] | None = None,
    ) -> None:
        assert threads > 0 <= waiting, "threads need a thread, and a queue of some length or none"
        self.name = name
        self._run = run
        self._wake = wake
        self._begin = begin
        self._limit = threads + waiting
        self._busy = 0
        self.backlogged = False
        """Set by the owner while more work waits than is here: a thread without an item is starved then."""
        # A number for each thread, which alone adds to it.
        self._busy_s = [0.0] * threads
        self._starved_s = [0.0] * threads
        self._items: queue.SimpleQueue[tuple[Item] | None] = queue.SimpleQueue()
        self._results: queue.SimpleQueue[tuple[Result] | BaseException] = queue.SimpleQueue()
        self._closing = threading.Event()
        self._threads = [
            threading.Thread(target=self._serve, args=(index,), name=f"{name}-{index}", daemon=True)
            for index in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def threads(self) -> int:
        """How many threads there are."""
        return len(self._threads)

    @property
    def busy_s(self) -> float:
        """Seconds of all runs so far, summed over the threads. Safe in any thread."""
        return sum(self._busy_s)

    @property
    def starved_s(self) -> float:
        """Seconds for which threads waited for an item while the owner was `backlogged`. Safe in any thread."""
        return sum(self._starved_s)

    @property
    def room(self) -> int:
        """How many items may still be submitted: threads + waiting - busy."""
        return self._limit - self._busy

    @property
    def busy(self) -> int:
        """Items submitted whose results were not taken back yet."""
        return self._busy

    def submit(self, item: Item) -> None:
        """Hand an item over. Needs room."""
        assert self.room > 0, "submitted more than there is room for"
        assert not self._closing.is_set(), "submitted after close"
        self._busy += 1
        self._items.put((item,))

    def completed(self) -> list[Result]:
        """Take the results that are in, in any order. Re-raises what `run` raised: a bug or a FatalError."""
        results: list[Result] = []
        while True:
            try:
                answer = self._results.get_nowait()
            except queue.Empty:
                return results
            self._busy -= 1
            if isinstance(answer, BaseException):
                raise answer
            results.append(answer[0])

    def close(self, timeout_s: float = CLOSE_S) -> None:
        """Drop what waits, and give running items `timeout_s` altogether to end. A hung one is left behind."""
        self._closing.set()
        for _ in self._threads:
            self._items.put(None)
        deadline_s = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, deadline_s - time.monotonic()))

    def _serve(self, thread: int) -> None:
        if self._begin:
            self._begin()
        while (item := self._next(thread)) is not None:
            if self._closing.is_set():
                continue
            began_s = time.monotonic()
            try:
                self._results.put((self._run(item[0]),))
            except BaseException as error:  # noqa: BLE001  it is raised again in the owner's thread
                self._results.put(error)
            self._busy_s[thread] += time.monotonic() - began_s
            self._wake()

    def _next(self, thread: int) -> tuple[Item] | None:
        """The next item; None to end. Whether a wait counts as hunger is decided by the backlog when it begins."""
        began_s, starved = time.monotonic(), self.backlogged
        item = self._items.get()
        if starved:
            self._starved_s[thread] += time.monotonic() - began_s
        return item
