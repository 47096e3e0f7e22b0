"""`/status.json`: everything that the page shows of one worker. Names and numbers only, no text of an article."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from enricher.worker.health.liveness import Waits
from enricher.worker.health.samples import Interval, Sample, lag_of, quantile, ratio
from enricher.worker.loop.recovery import RecoveryNote
from enricher.worker.runtime.watchdog import Watched
from enricher.worker.stats.counters import Counters
from enricher.worker.stats.histogram import LATENCIES_S, SECONDS, WAITS_S
from enricher.worker.stats.snapshot import Snapshot, WorkerState
from enricher.worker.telemetry.label_shares import bound_labels, shares_of
from enricher.worker.telemetry.observed import Observed
from enricher.worker.telemetry.readings import TASK_OUTCOMES

SHARES = {"p50_s": 0.5, "p90_s": 0.9, "p99_s": 0.99}


@dataclass(frozen=True, slots=True)
class View:
    """A worker that is built. The callables do not block and may be called from any thread."""

    observed: Observed
    watched: Callable[[], Watched | None]
    waits: Callable[[], Waits]
    recoveries: Callable[[], Sequence[RecoveryNote]]


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
        "tasks": _tasks(counters, minute),
        "labels": _labels(view.observed),
        "gpus": [asdict(gpu) for gpu in view.observed.gpus()],
    }


def state_of(snapshot: Snapshot | None) -> str:
    """The state of a worker; `idle` if it has nothing to do, `starting` if it is not built yet."""
    state = snapshot.state if snapshot else WorkerState.STARTING
    if snapshot and state is WorkerState.WORKING and lag_of(snapshot) == 0 and not snapshot.in_flight_articles:
        return "idle"
    return state.value


def _registry(snapshot: Snapshot) -> dict[str, float] | None:
    """Whether the registry answers, and what waits for it; None if articles need no schemas."""
    if snapshot.schemas is None:
        return None
    return {
        "away_s": snapshot.schemas.away_s,
        "wanted_schemas": snapshot.schemas.wanted,
        "waiting_articles": snapshot.waiting_articles,
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


def _dead_letters(counters: Counters) -> list[dict[str, Any]]:
    found = []
    for reason, count in sorted(counters.dead_letters.copy().items(), key=lambda pair: -pair[1]):
        stage, _, error_type = reason.partition(":")
        found.append({"stage": stage, "error_type": error_type, "count": count})
    return found


def _tasks(counters: Counters, minute: Interval) -> list[dict[str, Any]]:
    """The figures of each task in the settings. Tasks that share runs of the model each have all of their time."""
    return [
        {
            "name": name,
            "windows": task.windows,
            "tokens": task.real_tokens,
            **{outcome: task.outcomes[outcome] for outcome in TASK_OUTCOMES},
            "busy_share": minute.task_share(name) if name in minute.now.task_busy_s else None,
        }
        for name, task in counters.tasks.copy().items()
    ]


def _labels(seen: Observed) -> list[dict[str, Any]]:
    """The labels found since the start, the most frequent of each task first, with its share."""
    counts = bound_labels(seen.counters.labels.copy())
    ranked = sorted(shares_of(counts).items(), key=lambda each: (each[0][0], -each[1]))
    return [
        {"task": task, "label": label, "count": counts[task, label], "share": share} for (task, label), share in ranked
    ]


def _transactions(counters: Counters, minute: Interval) -> dict[str, float | None]:
    return {
        "committed": counters.transactions,
        "failed": counters.recoveries,
        "producers_renewed": counters.producers_renewed,
        **_quantiles(SECONDS, minute.before.transaction, minute.now.transaction),
    }


def _quantiles(bounds: Sequence[float], before: Sequence[int], now: Sequence[int]) -> dict[str, float | None]:
    """The quantiles, and the highest bound as `most_s`: a quantile that reaches it may be higher."""
    return {name: quantile(bounds, before, now, share) for name, share in SHARES.items()} | {"most_s": bounds[-1]}
