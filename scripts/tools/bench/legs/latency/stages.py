"""The time of one article by stage, from when it was due to when a read_committed consumer has it. Pure functions.

The stages of an article are the differences of one chain of moments, so they sum to its latency. A moment that was seen
before the one in front of it (a record is delivered before its acknowledgement) counts as simultaneous with that.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tools.bench.open_loop import key_of
from tools.bench.repeating import percentile
from tools.bench.timeline import BatchTimes, Passage, Timeline

STAGES: dict[str, str] = {
    "publisher: due until sent": "publish",
    "sent until the broker acknowledges": "publish",
    "fetch: until the worker's client has it": "fetch",
    "in the client's queue until the loop polls": "fetch",
    "decode": "tokenise",
    "wait for a tokenizer thread": "tokenise",
    "tokenise": "tokenise",
    "back to the loop, cut windows": "tokenise",
    "wait in the scheduler": "scheduler",
    "wait for a model thread": "model",
    "runs of the model": "model",
    "back to the loop, entities": "entities",
    "wait for the transaction": "wait for the transaction",
    "encode and produce": "transaction",
    "flush": "transaction",
    "check the topics": "transaction",
    "send offsets": "transaction",
    "commit": "transaction",
    "until the reader has it": "read",
}
"""Every stage in order, and the part of the plot that it belongs to."""
SLOWEST = 0.05
"""The share of articles whose mean is shown beside the mean of all."""


@dataclass(frozen=True, slots=True)
class StageTimes:
    """Milliseconds per article and stage, in the order of `STAGES`; each row sums to the article's latency."""

    rows: list[list[float]]

    def __add__(self, other: StageTimes) -> StageTimes:
        return StageTimes(self.rows + other.rows)

    @property
    def totals_ms(self) -> list[float]:
        return [sum(row) for row in self.rows]

    def p50_ms(self) -> list[float]:
        return [percentile(column, 0.5) for column in zip(*self.rows, strict=True)]

    def mean_ms(self) -> list[float]:
        """Mean by stage: these sum to the mean latency."""
        return _means(self.rows)

    def slowest_ms(self) -> list[float]:
        """Mean by stage over the slowest articles: what makes p99."""
        ordered = sorted(self.rows, key=sum, reverse=True)
        return _means(ordered[: max(1, round(SLOWEST * len(ordered)))])

    def as_dict(self) -> dict[str, Any]:
        by_stage = zip(STAGES, self.p50_ms(), self.mean_ms(), self.slowest_ms(), strict=True)
        stages = {name: {"p50_ms": p50, "mean_ms": mean, "slowest_ms": slow} for name, p50, mean, slow in by_stage}
        totals = self.totals_ms
        return {
            "articles": len(self.rows),
            "total_p50_ms": percentile(totals, 0.5),
            "total_mean_ms": statistics.mean(totals),
            "stages": stages,
        }


def stage_times(
    timeline: Timeline, client: Mapping[str, Sequence[float]], due_s: Sequence[float], start_s: float
) -> StageTimes:
    """The stages of all articles. `client`: the answer of the traced open loop, in seconds since its `start_s`."""
    rows = []
    for number, due in enumerate(due_s):
        moments = {
            name: client[name][number] + start_s for name in ("sent_s", "acknowledged_s", "readable_s", "seen_s")
        }
        passage = timeline.passages[key_of(number).encode()]
        rows.append(stages_of(passage, due_s=due + start_s, **moments))
    return StageTimes(rows)


def stages_of(
    passage: Passage, *, due_s: float, sent_s: float, acknowledged_s: float, readable_s: float, seen_s: float
) -> list[float]:
    """Milliseconds of one article in each stage. All times are monotonic.

    `readable_s`: when a consumer that only reads had it. If the loop was waiting in its poll by then, the article waited in
    no queue; else it lay in the client's queue from then on.
    """
    was_waiting = passage.polling_s <= max(acknowledged_s, readable_s)
    before = [sent_s, acknowledged_s, passage.polled_s if was_waiting else readable_s, passage.polled_s]
    tokenizer = [passage.to_tokenizer_s, passage.tokenizing_s, passage.tokenized_s, passage.queued_s]
    engine = list(_engine_moments(passage))
    times = passage.transaction
    publishing = [
        times.began_s,
        times.produced_s,
        times.flushed_s,
        times.confirmed_s,
        times.offsets_s,
        times.committed_s,
    ]
    moments = [*before, *tokenizer, *engine, passage.finished_s, *publishing, seen_s]
    # What comes later in the worker is certain; the client's moments were taken elsewhere, and have to fit in between.
    latest_s = [*[passage.polled_s] * len(before), *[seen_s] * (len(moments) - len(before))]
    at_s, stages = due_s, []
    for moment_s, limit_s in zip(moments, latest_s, strict=True):
        next_s = max(at_s, min(moment_s, limit_s))
        stages.append(1000 * (next_s - at_s))
        at_s = next_s
    return stages


def _engine_moments(passage: Passage) -> Iterator[float]:
    """The ends of the scheduler's part, of the wait for a thread, and of the runs.

    Windows of a long article wait while others of the same article run. Such time counts as runs; so the parts of what is
    before the last run are put one behind the other.
    """
    if not passage.batches:
        yield from [passage.queued_s] * 3
        return
    last = max(passage.batches, key=lambda batch: batch.ended_s)
    scheduler_s = last.submitted_s - passage.queued_s - _running_s(passage.batches, passage.queued_s, last.submitted_s)
    thread_s = last.began_s - last.submitted_s - _running_s(passage.batches, last.submitted_s, last.began_s)
    yield passage.queued_s + scheduler_s
    yield passage.queued_s + scheduler_s + thread_s
    yield last.ended_s


def _running_s(batches: Sequence[BatchTimes], start_s: float, stop_s: float) -> float:
    """Seconds for which at least one of these batches runs in [start_s, stop_s)."""
    running_s, counted_to_s = 0.0, start_s
    for batch in sorted(batches, key=lambda each: each.began_s):
        begin_s, end_s = max(batch.began_s, counted_to_s), min(batch.ended_s, stop_s)
        running_s += max(0.0, end_s - begin_s)
        counted_to_s = max(counted_to_s, end_s)
    return running_s


def _means(rows: Sequence[Sequence[float]]) -> list[float]:
    return [statistics.mean(column) for column in zip(*rows, strict=True)]
