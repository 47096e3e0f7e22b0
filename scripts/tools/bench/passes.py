"""One way to run batches (`Leg`), whole passes over the same batches that are timed, and how rivals pad. Needs no Kafka."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Barrier
from typing import Any

import numpy as np

from enricher.worker.inference.device.sessions import Feeds
from enricher.worker.records import Window
from tools.waiting import Closing

Batches = list[list[Window]]


@dataclass(frozen=True, slots=True)
class Leg:
    """One way to run batches: `run` takes what `feeds` makes of one."""

    name: str
    feeds: Callable[[Sequence[Window]], Any]
    run: Callable[[Any], Any]
    pads: bool = True


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


def in_order_of_arrival(windows: Sequence[Window], batch_tokens: int) -> Batches:
    """In order, as many windows as fit when padded to the longest."""
    batches: Batches = [[]]
    for window in windows:
        longest = max([window.length_tokens, *(each.length_tokens for each in batches[-1])])
        if batches[-1] and (len(batches[-1]) + 1) * longest > batch_tokens:
            batches.append([])
        batches[-1].append(window)
    return batches


def packed_batches(windows: Sequence[Window], max_tokens: int) -> Batches:
    """In order, as many windows as fit into `max_tokens`: packed batches gain nothing from similar lengths."""
    batches: Batches = [[]]
    left = max_tokens
    for window in windows:
        if window.length_tokens > left and batches[-1]:
            batches.append([])
            left = max_tokens
        batches[-1].append(window)
        left -= window.length_tokens
    return batches


def stock_feeds(inputs: Collection[str], pad_id: int = 0) -> Callable[[Sequence[Window]], Feeds]:
    """Makes the arrays of a plain export with these inputs."""

    def feeds(windows: Sequence[Window]) -> Feeds:
        ids, mask = pad(windows, pad_id)
        arrays = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        return {name: array for name, array in arrays.items() if name in inputs}

    return feeds


def pad(windows: Sequence[Window], pad_id: int, *, step_tokens: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Ids and mask, `int64 [windows, length]`: the longest window's length, rounded up to whole steps."""
    lengths = np.array([window.length_tokens for window in windows])
    longest = -(-int(lengths.max()) // step_tokens) * step_tokens
    mask = (np.arange(longest) < lengths[:, None]).astype(np.int64)
    ids = np.full(mask.shape, pad_id, np.int64)
    for row, window in zip(ids, windows, strict=True):
        row[: window.length_tokens] = window.ids
    return ids, mask
