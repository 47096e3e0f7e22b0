"""Measures where the loop's thread spends its time, with clocks around functions; nested stages are subtracted.

The clocks cost as much as the shortest stages, so totals come from separate runs without clocks. The cost of a pair of
clocks is measured beforehand and subtracted.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import enricher.worker.heads.ner
import enricher.worker.loop.loop
import enricher.worker.rules.assembly
from enricher.worker.articles import Encoder
from enricher.worker.kafka.sink import TransactionalSink
from enricher.worker.kafka.source import KafkaSource
from enricher.worker.kafka.transaction import Transaction
from enricher.worker.loop.intake import Intake
from enricher.worker.loop.pool import WorkerPool
from enricher.worker.rules.batching import LengthBucketScheduler
from enricher.worker.rules.offsets import OffsetTracker
from enricher.worker.rules.windowing import WindowCutter

STAGES: dict[str, tuple[tuple[object, str], ...]] = {
    "poll: the client's messages, as records": ((KafkaSource, "poll"),),
    "track: tickets in flight, released in order": ((OffsetTracker, "track"), (OffsetTracker, "release")),
    "decode: JSON to an article": ((Intake, "take"),),
    "cut: windows of the article's tokens": ((WindowCutter, "cut"),),
    "schedule: windows into batches": ((LengthBucketScheduler, "add"), (LengthBucketScheduler, "next_batch")),
    "hand over: to the threads and back": ((WorkerPool, "submit"), (WorkerPool, "completed")),
    "collect: labels to their tickets": ((enricher.worker.loop.loop, "store_answers"),),
    "spans: labels to entities": ((enricher.worker.heads.ner, "decode_entities"),),
    "write: entities as JSON": ((enricher.worker.loop.loop, "serialise_findings"),),
    "encode: the record as JSON, its headers": ((Encoder, "outgoing"),),
    "produce: records to the client": ((Transaction, "_produce_one"),),
    "commit: flush, offsets, end of the transaction": ((TransactionalSink, "publish"),),
}
"""The functions of each stage."""
REST = "the loop itself"
_CALIBRATIONS = 20_000


class StageTimes:
    """Nanoseconds of the loop's thread by stage, corrected for the clocks. `clock_ns`: CPU time of the thread."""

    def __init__(self, clock_ns: Callable[[], int] = time.thread_time_ns) -> None:
        self._clock_ns = clock_ns
        self._ns: defaultdict[str, float] = defaultdict(float)
        self._nested_ns = [0.0]
        """Nanoseconds of the stages nested in each running stage, clocks included."""
        self._inner_ns = self._outer_ns = 0.0
        self._calibrate()

    def seconds(self) -> dict[str, float]:
        return {stage: self._ns[stage] / 1e9 for stage in STAGES}

    @property
    def clocked_s(self) -> float:
        """All stages and clocks together; the rest of the thread's time is the loop itself."""
        return self._nested_ns[0] / 1e9

    def around(self, stage: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401  whatever the function takes and gives
            self._nested_ns.append(0.0)
            began_ns = self._clock_ns()
            try:
                return function(*args, **kwargs)
            finally:
                took_ns = self._clock_ns() - began_ns
                self._ns[stage] += took_ns - self._nested_ns.pop() - self._inner_ns
                self._nested_ns[-1] += took_ns + self._outer_ns

        return timed

    def _calibrate(self) -> None:
        """Measure how much of a pair of clocks falls inside the measured time, and how much outside, into the caller's."""

        def nothing() -> None:
            pass

        timed = self.around("", nothing)
        began_ns = self._clock_ns()
        for _ in range(_CALIBRATIONS):
            timed()
        whole_ns = (self._clock_ns() - began_ns) / _CALIBRATIONS
        self._inner_ns = self._ns.pop("") / _CALIBRATIONS
        self._outer_ns = whole_ns - self._inner_ns
        self._nested_ns = [0.0]


@contextmanager
def stage_times() -> Iterator[StageTimes]:
    """Measure every stage of every worker in this process inside the context."""
    times = StageTimes()
    with ExitStack() as patched:
        for stage, functions in STAGES.items():
            for owner, name in functions:
                patched.enter_context(patch.object(owner, name, times.around(stage, getattr(owner, name))))
        yield times
