"""Times whole passes over the same batches. Both benches of models do: on a CPU in turns, on a GPU one after the other."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Barrier
from typing import TYPE_CHECKING, Any

from tools.closing import Closing

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


@dataclass(frozen=True, slots=True)
class Pass:
    """One pass: wall time, and the processor time of this process."""

    seconds: float
    cpu_s: float


class Passes(Closing):
    """Runs all `feeds` by `callers` threads, which stay: a device's streams and handles are per thread."""

    def __init__(self, run: Callable[[Any], Any], feeds: Sequence[Any], callers: int) -> None:
        self._run = run
        self._feeds = feeds
        self._callers = callers
        self._pool = ThreadPoolExecutor(callers)

    def warm_up(self) -> None:
        """Run every feed on every thread. The barrier gives each thread one turn; cuDNN also plans for each shape."""
        together = Barrier(self._callers)

        def warm(_: int) -> None:
            together.wait()
            for feed in self._feeds:
                self._run(feed)

        list(self._pool.map(warm, range(self._callers)))

    def once(self) -> Pass:
        """Run every feed once, on whichever thread is free."""
        began_s, cpu_s = time.perf_counter(), time.process_time()
        list(self._pool.map(self._run, self._feeds))
        return Pass(time.perf_counter() - began_s, time.process_time() - cpu_s)

    def close(self) -> None:
        self._pool.shutdown()
