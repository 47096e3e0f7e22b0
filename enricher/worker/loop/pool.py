"""A bounded pool of threads that run one function; its owner polls for results. Used for the engine and the tokenizer.

Not `ThreadPoolExecutor`: its threads are not daemons and are joined at exit, so one hung run would keep the process alive.
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
"""How long `close` waits for running items: many times a run. If a thread is still inside ONNX Runtime when the
interpreter exits, the process can crash."""


class WorkerPool(Generic[Item, Result]):
    """Calls `run` on submitted items in `threads` threads. Methods are for one owner thread; only `close` may block.

    Pool threads call `wake` after each result and `begin` before their first item; both must be thread-safe and not raise.
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
        assert threads > 0, "a pool has at least one thread"
        assert waiting >= 0, "a queue has no negative length"
        self.name = name
        self._run = run
        self._wake = wake
        self._begin = begin
        self._limit = threads + waiting
        self.busy = 0
        """The number of submitted items whose results `take_results` has not returned yet."""
        self.threads = threads
        self.backlogged = False
        """Set by the owner while it has more work than fits here: a thread without an item is starved then."""
        # One sum per thread, so that each has one writer.
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
    def busy_s(self) -> float:
        """Seconds spent in `run` so far, summed over the threads. Safe in any thread."""
        return sum(self._busy_s)

    @property
    def starved_s(self) -> float:
        """Seconds for which threads waited for an item while the owner was `backlogged`. Safe in any thread."""
        return sum(self._starved_s)

    @property
    def capacity(self) -> int:
        """How many more items may be submitted: threads + waiting - busy."""
        return self._limit - self.busy

    def submit(self, item: Item) -> None:
        """Queue an item. Needs capacity."""
        assert self.capacity > 0, "submitted beyond the capacity"
        assert not self._closing.is_set(), "submitted after close"
        self.busy += 1
        self._items.put((item,))

    def take_results(self) -> list[Result]:
        """Return the results so far, in any order. Re-raises what `run` raised: a bug or a FatalError."""
        results: list[Result] = []
        while True:
            try:
                answer = self._results.get_nowait()
            except queue.Empty:
                return results
            self.busy -= 1
            if isinstance(answer, BaseException):
                raise answer
            results.append(answer[0])

    def close(self, timeout_s: float = CLOSE_S) -> None:
        """Drop waiting items and wait for the running ones, `timeout_s` in all. A thread that hangs is abandoned."""
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
            except BaseException as error:  # noqa: BLE001  raised again in the owner's thread
                self._results.put(error)
            self._busy_s[thread] += time.monotonic() - began_s
            self._wake()

    def _next(self, thread: int) -> tuple[Item] | None:
        """The next item; None to end. A wait counts as starved if the owner was backlogged when it began."""
        began_s, starved = time.monotonic(), self.backlogged
        item = self._items.get()
        if starved:
            self._starved_s[thread] += time.monotonic() - began_s
        return item
