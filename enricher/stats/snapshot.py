"""How full everything is right now. Plain data; `worker/snapshot.py` fills it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from enricher.records import Partition


class WorkerState(Enum):
    """Where a worker is in its life."""

    STARTING = "starting"
    """The model is being loaded, or the broker asked."""
    JOINING = "joining"
    """It asked to join the group, and is no member yet."""
    WORKING = "working"
    RECOVERING = "recovering"
    """On the way back from trouble in a transaction: the broker may be away."""
    DRAINING = "draining"
    """Asked to end."""


@dataclass(frozen=True, slots=True)
class Unstable:
    """What a partition holds behind an open transaction of its publisher: no reader of committed records gets it."""

    offsets: int = 0
    """From the last stable offset to the high watermark."""
    age_s: float = 0.0
    """For how long the last stable offset has not moved, though the high watermark is ahead of it."""


@dataclass(frozen=True, slots=True)
class Connection:
    """How the source stands with its broker; the values of one without a broker are the defaults."""

    joined: bool = True
    """A member of the group."""
    brokers: int | None = None
    """How many it is connected with; None while nothing is known."""
    away_s: float = 0.0
    """For how long it has been connected with none."""
    ends: Mapping[Partition, int] = field(default_factory=dict)
    """The offset after the last one that may be read, of each partition, as far as is known."""
    starts: Mapping[Partition, int] = field(default_factory=dict)
    """The offset at which reading of each of our partitions began."""
    topic_partitions: Mapping[str, int] = field(default_factory=dict)
    """How many partitions each of the three topics has."""
    silent_s: float = 0.0
    """For how long a partition that is behind its end has given nothing; of several the longest."""
    unstable: Mapping[Partition, Unstable] = field(default_factory=dict)
    """Of the partitions that are being fetched."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One look at the worker. It is not one instant: the loop goes on meanwhile."""

    state: WorkerState
    connection: Connection
    partitions: int
    lags: Mapping[Partition, int]
    """Offsets between the committable one and the end, of each of our partitions of which both are known."""
    unstable: Mapping[Partition, Unstable]
    """Of each of our partitions of which it is known."""
    oldest_age_s: float
    """Of the oldest record known to be unprocessed, by the timestamp that it has in Kafka; 0 when there is none.

    While no broker answers, a record published just after it went away would be that old: then at least so much."""
    in_flight_articles: int
    in_flight_bytes: int
    held_back_articles: int
    """Finished, but behind an unfinished offset of their partition."""
    queued_windows: int
    queued_tokens: int
    budget_tokens: int
    concurrency: int
    engine_busy_s: float
    """Seconds of runs, summed over the threads, since the start."""
    engine_starved_s: float
    """Seconds of threads without work though there was a backlog, since the start."""
    turn_age_s: float
    """Since the loop last began a turn."""
