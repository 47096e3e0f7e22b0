"""What readers see when a worker joins and leaves: the longest time without a record, and the longest latency."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tools.bench.arrivals import poisson
from tools.bench.bench import Bench
from tools.bench.child import Child
from tools.bench.legs.scale.crew import PARTITIONS, Crew
from tools.bench.load import articles
from tools.bench.open_loop import Job

RATE_PER_S = 200.0
"""Headlines: 25 per second and partition, so that a pause of one partition is measured to a few hundredths of a second."""
_ALL_S, _BEFORE_S, _BETWEEN_S = 30.0, 5.0, 3.0
"""Duration of the articles; time before the second worker starts; time between events."""
_SETTLING_S = 2.0
"""The time after an event that still belongs to it: a partition that moved late catches up."""


@dataclass(frozen=True, slots=True)
class Pause:
    """What readers saw around one event. `settling_s`: until the group had assigned the partitions again."""

    settling_s: float
    longest_gap_s: float
    """Longest time without a record of any partition."""
    longest_partition_gap_s: float
    """Longest time without a record of one partition."""
    worst_latency_s: float


@dataclass(frozen=True, slots=True)
class Span:
    """A part of the run, in seconds from its start."""

    begin_s: float
    end_s: float


def longest_gap(times_s: Sequence[float], span: Span) -> float:
    """The longest gap between neighbours of `times_s` that overlaps the span, in full length; 0.0 if there is none."""
    pairs = pairwise(sorted(times_s))
    return max((late - early for early, late in pairs if late > span.begin_s and early < span.end_s), default=0.0)


def join_and_leave(bench: Bench, crew: Crew, device_tokens_per_s: float) -> Mapping[str, Pause]:
    """Publish steadily to one worker while a second one joins and leaves gracefully (as on SIGTERM)."""
    due_s = poisson(RATE_PER_S, _ALL_S, seed=0)
    values = articles("headlines", len(due_s))
    with Child("tools.bench.open_loop") as client:
        client.say(Job.between(crew.topics, bench.cluster.bootstrap_servers, PARTITIONS, values, due_s))
        start_s = client.hear()["start_s"]
        _until(start_s + _BEFORE_S)
        bench.say("a worker joins")
        came_s = time.monotonic()
        crew.hire()
        crew.workers[-1].say({"tokens_per_s": device_tokens_per_s})
        crew.workers[-1].hear()
        shared_s = crew.ready()
        _until(shared_s + _BETWEEN_S)
        bench.say("a worker leaves")
        went_s = time.monotonic()
        crew.workers.pop().leave()
        alone_s = crew.ready()
        bench.say("waiting until all is visible")
        seen_s = client.hear()["seen_s"]
    assert alone_s + _SETTLING_S < start_s + _ALL_S, "articles go on arriving until after the last event"
    spans = {
        "no change": Span(1.0, _BEFORE_S),
        "a worker joins": Span(came_s - start_s, shared_s - start_s + _SETTLING_S),
        "a worker leaves": Span(went_s - start_s, alone_s - start_s + _SETTLING_S),
    }
    settling_s = dict(zip(spans, (0.0, shared_s - came_s, alone_s - went_s), strict=True))
    return {name: _pause(due_s, seen_s, span, settling_s[name]) for name, span in spans.items()}


def _pause(due_s: Sequence[float], seen_s: Sequence[float], span: Span, settling_s: float) -> Pause:
    waits_s = [seen - due for due, seen in zip(due_s, seen_s, strict=True) if span.begin_s <= due < span.end_s]
    # Article i went to partition i % PARTITIONS.
    partition_gaps_s = [longest_gap(seen_s[number::PARTITIONS], span) for number in range(PARTITIONS)]
    return Pause(settling_s, longest_gap(seen_s, span), max(partition_gaps_s), max(waits_s))


def _until(then_s: float) -> None:
    time.sleep(max(0.0, then_s - time.monotonic()))
