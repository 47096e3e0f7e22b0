"""Publishes steadily while a worker joins and leaves, and collects what readers saw and what the workers noted."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from tools.bench.arrivals import poisson
from tools.bench.bench import PARTITIONS, Bench
from tools.bench.child import Child
from tools.bench.legs.scale.crew import Crew
from tools.bench.load import articles
from tools.bench.moments import Moment
from tools.bench.open_loop import Job

RATE_PER_S = 200.0
"""Headlines: 25 per second and partition, so that a pause of one partition is measured to a few hundredths of a second."""
DEVICE_TOKENS_PER_S = 50_000.0
_BEFORE_S, _BETWEEN_S, _CYCLE_S, _AFTER_S = 6.0, 4.0, 20.0, 10.0
"""Time before the first worker joins; between events; for one to join and leave; after the last event."""
_PHASE_S = 0.37
"""Each repetition waits this much longer, so that events meet different moments between two heartbeats."""
_CATCH_UP_S = 2.0
"""The time after an event that still belongs to it: a partition that moved late catches up."""


@dataclass(frozen=True, slots=True)
class Span:
    """A part of the run, in seconds from its start."""

    begin_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class Change:
    """One event. The gaps are the longest times without a record, of any partition and of one partition."""

    kind: str
    """`nothing`, `joins` or `leaves`."""
    longest_gap_s: float
    longest_partition_gap_s: float
    worst_latency_s: float
    began_s: float
    """When the worker was started or asked to stop, on the clock of the moments."""
    own: Sequence[Moment]
    """Moments of the worker that joins or leaves."""
    others: Sequence[Moment]
    """Moments of the workers that stay."""
    recoveries: int
    """All workers together, while it happened."""


@dataclass(frozen=True, slots=True)
class _Event:
    """A change before it is known what readers saw."""

    kind: str
    began_s: float
    ended_s: float
    own: Sequence[Moment] = ()
    others: Sequence[Moment] = ()
    recoveries: int = 0


def longest_gap(times_s: Sequence[float], span: Span) -> float:
    """The longest gap between neighbours of `times_s` that overlaps the span, in full length; 0.0 if there is none."""
    pairs = pairwise(sorted(times_s))
    return max((late - early for early, late in pairs if late > span.begin_s and early < span.end_s), default=0.0)


def join_and_leave(bench: Bench, crew: Crew) -> Sequence[Change]:
    """Publish steadily to the crew while one more worker joins and leaves gracefully, once per repetition."""
    newcomers = _hire(crew, bench.repetitions)
    crew.command(join=True, tokens_per_s=DEVICE_TOKENS_PER_S)
    crew.ready()
    all_s = _BEFORE_S + bench.repetitions * (_CYCLE_S + bench.repetitions * _PHASE_S) + _AFTER_S
    due_s = poisson(RATE_PER_S, all_s, seed=0)
    values = articles("headlines", len(due_s))
    with Child("tools.bench.open_loop") as client:
        client.say(Job.between(crew.topics, bench.cluster.bootstrap_servers, PARTITIONS, values, due_s))
        start_s = client.hear()["start_s"]
        events = [_Event("nothing", start_s + 1.0, start_s + _BEFORE_S)]
        _until(start_s + _BEFORE_S)
        for number, newcomer in enumerate(newcomers):
            events.append(_join(bench, crew, newcomer))
            _until(events[-1].ended_s + _BETWEEN_S + number * _PHASE_S)
            events.append(_leave(bench, crew))
            _until(events[-1].ended_s + _BETWEEN_S + number * _PHASE_S)
        bench.say("waiting until all is visible")
        seen_s = client.hear()["seen_s"]
    if events[-1].ended_s + _CATCH_UP_S > start_s + all_s:
        raise TimeoutError("no articles arrived at the last event: the machine is too busy for this measurement")
    return [_change_of(event, start_s, due_s, seen_s) for event in events]


def _hire(crew: Crew, count: int) -> list[Child]:
    """Workers that have started and wait for the command to join. They are not counted among the crew's yet."""
    newcomers = [crew.hire() for _ in range(count)]
    del crew.workers[-count:]
    for newcomer in newcomers:
        newcomer.ask(tokens_per_s=DEVICE_TOKENS_PER_S)
    return newcomers


def _join(bench: Bench, crew: Crew, newcomer: Child) -> _Event:
    bench.say("a worker joins")
    crew.command()  # forgets earlier moments
    began_s = time.monotonic()
    first = _moments(newcomer.ask(join=True))
    crew.workers.append(newcomer)
    ended_s = crew.ready()
    _until(ended_s + _CATCH_UP_S)
    *others, own = crew.command()
    return _Event("joins", began_s, ended_s, first + _moments(own), *_together(others))


def _leave(bench: Bench, crew: Crew) -> _Event:
    bench.say("a worker leaves")
    crew.command()
    leaving = crew.workers.pop()
    began_s = time.monotonic()
    leaving.leave()
    ended_s = crew.ready()
    _until(ended_s + _CATCH_UP_S)
    return _Event("leaves", began_s, ended_s, _moments(leaving.hear()), *_together(crew.command()))


def _moments(answer: Mapping[str, Any]) -> list[Moment]:
    return [Moment(**moment) for moment in answer["moments"]]


def _together(answers: Sequence[Mapping[str, Any]]) -> tuple[list[Moment], int]:
    moments = sorted((moment for answer in answers for moment in _moments(answer)), key=lambda moment: moment.at_s)
    return moments, sum(answer["recoveries"] for answer in answers)


def _change_of(event: _Event, start_s: float, due_s: Sequence[float], seen_s: Sequence[float]) -> Change:
    span = Span(event.began_s - start_s, event.ended_s - start_s + (0 if event.kind == "nothing" else _CATCH_UP_S))
    waits_s = [seen - due for due, seen in zip(due_s, seen_s, strict=True) if span.begin_s <= due < span.end_s]
    # Article i went to partition i % PARTITIONS.
    partition_gaps_s = [longest_gap(seen_s[number::PARTITIONS], span) for number in range(PARTITIONS)]
    return Change(
        event.kind,
        longest_gap(seen_s, span),
        max(partition_gaps_s),
        max(waits_s),
        event.began_s,
        event.own,
        event.others,
        event.recoveries,
    )


def _until(then_s: float) -> None:
    time.sleep(max(0.0, then_s - time.monotonic()))
