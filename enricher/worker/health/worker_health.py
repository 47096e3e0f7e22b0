"""One worker's health, from the start of the process to its end: the answers to probes, and `/status.json`.

A worker is not alive if its loop, model or tokenizer has work and makes no progress. The watchdog ends such a process at the
full bound; the probe fails at half of it, so that Kubernetes records the reason before the process is gone. Steps that wait
for the broker fail the probe only at their full bound: a new process would wait for the same broker, after loading the model
again. The status has names and numbers only, no text of an article.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from enricher.worker.health.routes import Health, ProbeResult
from enricher.worker.health.samples import (
    COLUMNS,
    EVERY_S,
    KEPT_S,
    OVER_S,
    Interval,
    Sample,
    interval_to,
    lag_of,
    quantile,
    ratio,
    rows,
    take_sample,
)
from enricher.worker.loop.recovery import RecoveryNote
from enricher.worker.runtime.watchdog import Watched
from enricher.worker.stats import LATENCIES_S, SECONDS, WAITS_S, Counters, Snapshot, WorkerState
from enricher.worker.telemetry.instruments import TASK_OUTCOMES
from enricher.worker.telemetry.observed import Observed, WorkerFacts
from enricher.worker.telemetry.prometheus import exposition, starting_exposition

LOADING = "loading the model"
TURN = "one turn of the loop"
"""The name of the guard around work that depends on this process alone. All other guards wait for the broker."""
SHARE = 0.5
"""The share of the bound at which the probe fails, for work that does not wait for the broker."""
SHARES = {"p50_s": 0.5, "p90_s": 0.9, "p99_s": 0.99}


@dataclass(frozen=True, slots=True)
class Waits:
    """The seconds for which engine and tokenizer have had work and no result, by the loop. `limit_s` bounds both."""

    engine_s: float
    tokenizer_s: float
    limit_s: float


@dataclass(frozen=True, slots=True)
class View:
    """A worker that is built. The callables do not block and may be called from any thread."""

    observed: Observed
    watched: Callable[[], Watched | None]
    waits: Callable[[], Waits]
    recoveries: Callable[[], Sequence[RecoveryNote]]


class WorkerHealth(Health):
    """Answers for one worker, also before it is built."""

    def __init__(
        self,
        facts: WorkerFacts,
        *,
        clock: Callable[[], float] = time.monotonic,
        epoch_clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(LOADING)
        self._facts = facts
        self._clock, self._epoch_clock = clock, epoch_clock
        self._began_s = clock()
        self._view: View | None = None
        self._samples: deque[Sample] = deque(maxlen=int(KEPT_S / EVERY_S) + 1)

    # ---- called by the command

    def show(self, view: View) -> None:
        """Answer from this worker from now on: it is built."""
        self._view = view
        self.sample()

    @property
    def is_built(self) -> bool:
        """Whether the worker is built."""
        return self._view is not None

    def sample(self) -> None:
        """Take one sample for the charts; called every `EVERY_S` seconds."""
        if self._view:
            seen = self._view.observed
            self._samples.append(take_sample(seen.counters, seen.snapshot(), self._clock(), self._epoch_clock()))

    # ---- called by the server

    def liveness(self) -> ProbeResult:
        """Not ok if only a new process can help. It is always ok during the start, which the startup probe bounds."""
        if not self._view:
            return ProbeResult(ok=True, reason=self._step)
        reason = why_stuck(self._view.watched(), self._view.waits())
        return ProbeResult(ok=reason is None, reason=reason or "the loop turns")

    def readiness(self) -> ProbeResult:
        """Ok if the model has run, the worker is a member of the group, and it is not draining.

        It stays ready while the brokers are away, because they are away for other workers too.
        """
        if not self._view:
            return ProbeResult(ok=False, reason=self._step)
        snapshot = self._view.observed.snapshot()
        if snapshot.state is WorkerState.DRAINING:
            return ProbeResult(ok=False, reason="draining")
        if not snapshot.connection.joined:
            return ProbeResult(ok=False, reason="not yet a member of the group")
        return ProbeResult(ok=True, reason=snapshot.state.value)

    def metrics(self, accept: str) -> tuple[bytes, str]:
        """The metrics in a format that `accept` allows, and its content type."""
        return exposition(self._view.observed, accept) if self._view else starting_exposition(accept)

    def status(self, since: float = 0.0) -> dict[str, Any]:
        """Everything that the page shows, with the charts' rows after `since` (Unix time)."""
        epoch_s, view, samples = self._epoch_clock(), self._view, tuple(self._samples)
        snapshot = view.observed.snapshot() if view else None
        status: dict[str, Any] = {
            "now": epoch_s,
            "uptime_s": self._clock() - self._began_s,
            "state": state_of(snapshot),
            "live": asdict(self.liveness()),
            "ready": asdict(self.readiness()),
            "worker": asdict(self._facts),
            "history": {"columns": COLUMNS, "rows": rows(samples, since)},
        }
        if view and snapshot:
            now = take_sample(view.observed.counters, snapshot, self._clock(), epoch_s)
            status |= status_of(view, snapshot, now, interval_to(samples, now, OVER_S))
        return status


def why_stuck(watched: Watched | None, waits: Waits) -> str | None:
    """Why only a new process can help, in one line; None if the worker makes progress, or may still make some."""
    if watched is not None:
        limit_s = watched.limit_s * (SHARE if watched.what == TURN else 1.0)
        if watched.since_s > limit_s:
            return f"no progress in '{watched.what}' for {watched.since_s:.0f} s, bound {limit_s:g} s"
    limit_s = waits.limit_s * SHARE
    if waits.engine_s > limit_s:
        return f"the model has finished no batch for {waits.engine_s:.0f} s, bound {limit_s:g} s"
    if waits.tokenizer_s > limit_s:
        return f"the tokenizer has finished nothing for {waits.tokenizer_s:.0f} s, bound {limit_s:g} s"
    return None


def state_of(snapshot: Snapshot | None) -> str:
    """The state of a worker; `idle` if it has nothing to do, `starting` if it is not built yet."""
    state = snapshot.state if snapshot else WorkerState.STARTING
    if snapshot and state is WorkerState.WORKING and lag_of(snapshot) == 0 and not snapshot.in_flight_articles:
        return "idle"
    return state.value


def status_of(view: View, snapshot: Snapshot, now: Sample, minute: Interval) -> dict[str, Any]:
    """The part of the status that needs a built worker. `minute` ends with `now`."""
    counters = view.observed.counters
    return {
        "model": asdict(view.observed.model),
        "rates": {
            "articles_per_s": minute.rate("published"),
            "windows_per_s": minute.rate("windows"),
            "tokens_per_s": minute.rate("padded_tokens"),
        },
        "totals": _totals(counters),
        "batches": _batches(minute, snapshot),
        "latency": _quantiles(LATENCIES_S, minute.before.latency, now.latency),
        "oldest_age_s": snapshot.oldest_age_s,
        "engine": {
            "concurrency": snapshot.concurrency,
            "busy_share": minute.thread_share("engine_busy_s"),
            "starved_share": minute.thread_share("engine_starved_s"),
        },
        "in_flight": {
            "articles": snapshot.in_flight_articles,
            "bytes": snapshot.in_flight_bytes,
            "held_back": snapshot.held_back_articles,
            "waiting_for_schemas": snapshot.waiting_articles,
            "queued_windows": snapshot.queued_windows,
            "queued_tokens": snapshot.queued_tokens,
        },
        "registry": _registry(snapshot),
        "partitions": _partitions(snapshot),
        "lag": lag_of(snapshot),
        "assigned": snapshot.partitions,
        "unstable_age_s": max((unstable.age_s for unstable in snapshot.unstable.values()), default=None),
        "brokers": snapshot.connection.brokers,
        "dead_letters": _dead_letters(counters),
        "transactions": _transactions(counters, minute),
        "rebalances": dict(counters.rebalances),
        "recoveries": [
            {
                "at": now.epoch_s - (now.at_s - note.began_s),
                "reason": note.reason,
                "duration_s": note.duration_s,
                "recovered": note.recovered,
            }
            for note in reversed(view.recoveries())
        ],
        "tasks": [
            {"name": name, **{outcome: outcomes[outcome] for outcome in TASK_OUTCOMES}}
            for name, outcomes in counters.tasks.copy().items()
        ],
        "labels": _labels(view.observed),
        "gpus": [asdict(gpu) for gpu in view.observed.gpus()],
    }


def _totals(counters: Counters) -> dict[str, int]:
    names = ["read", "records", "published", "entities", "tombstones", "windows", "batches"]
    names += ["forgotten", "repeated", "out_of_memory"]
    return {name: getattr(counters, name) for name in names} | {"dead_letters": counters.dead_letters.total()}


def _batches(minute: Interval, snapshot: Snapshot) -> dict[str, float | None]:
    batches = minute.difference("batches")
    return {
        "per_s": minute.rate("batches"),
        "windows": ratio(minute.difference("windows"), batches),
        "fill": minute.fill(),
        "padding_share": minute.padding_share(),
        "budget_tokens": snapshot.budget_tokens,
        **{f"wait_{name}": value for name, value in _quantiles(WAITS_S, minute.before.wait, minute.now.wait).items()},
    }


def _quantiles(bounds: Sequence[float], before: Sequence[int], now: Sequence[int]) -> dict[str, float | None]:
    """The quantiles, and the highest bound as `most_s`: a quantile that equals the bound may be higher."""
    return {name: quantile(bounds, before, now, share) for name, share in SHARES.items()} | {"most_s": bounds[-1]}


def _partitions(snapshot: Snapshot) -> list[dict[str, Any]]:
    """The assigned partitions, the largest lag first."""
    lags = sorted(snapshot.lags.items(), key=lambda pair: (-pair[1], pair[0]))
    return [
        {
            "topic": partition.topic,
            "number": partition.number,
            "lag": lag,
            "waiting_for_schemas": snapshot.waiting.get(partition, 0),
        }
        for partition, lag in lags
    ]


def _registry(snapshot: Snapshot) -> dict[str, float] | None:
    """Whether the registry answers, and what waits for it; None if articles need no schemas."""
    if snapshot.schemas is None:
        return None
    return {
        "away_s": snapshot.schemas.away_s,
        "wanted_schemas": snapshot.schemas.wanted,
        "waiting_articles": snapshot.waiting_articles,
    }


def _dead_letters(counters: Counters) -> list[dict[str, Any]]:
    found = []
    for of_stage, count in sorted(counters.dead_letter_reasons.copy().items(), key=lambda pair: -pair[1]):
        stage, _, reason = of_stage.partition(":")
        found.append({"stage": stage, "reason": reason, "count": count})
    return found


def _transactions(counters: Counters, minute: Interval) -> dict[str, float | None]:
    return {
        "committed": counters.transactions,
        "failed": counters.recoveries,
        "producers_renewed": counters.producers_renewed,
        **_quantiles(SECONDS, minute.before.transaction, minute.now.transaction),
    }


def _labels(seen: Observed) -> list[dict[str, Any]]:
    """The labels found since the start, the most frequent of each task first, with its share."""
    counts, totals = seen.counters.labels.copy(), Counter[str]()
    for (task, _), count in counts.items():
        totals[task] += count
    return [
        {"task": task, "label": label, "count": count, "share": count / totals[task]}
        for (task, label), count in sorted(counts.items(), key=lambda each: (each[0][0], -each[1]))
    ]
