"""The state of a worker at one moment. Plain data; `worker/loop/snapshot.py` fills it in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from enricher.worker.records import Partition


class WorkerState(Enum):
    """The phase of a worker's life."""

    STARTING = "starting"
    """It loads the model or connects with the brokers."""
    JOINING = "joining"
    """It has asked to join the group and is not a member yet."""
    WORKING = "working"
    RECOVERING = "recovering"
    """It recovers from a failed transaction; the broker may be away."""
    DRAINING = "draining"
    """It finishes its batches and ends."""


@dataclass(frozen=True, slots=True)
class Unstable:
    """The offsets after the last stable one: an open transaction of a publisher keeps them from consumers."""

    offsets: int = 0
    """From the last stable offset to the end offset."""
    age_s: float = 0.0
    """Seconds for which the last stable offset has not moved, while the end offset is higher."""


@dataclass(frozen=True, slots=True)
class Connection:
    """The state of the source's connection; the defaults are those of a source without a broker."""

    joined: bool = True
    """Whether the worker is a member of the group."""
    brokers: int | None = None
    """Number of connected brokers; None while unknown."""
    away_s: float = 0.0
    """Seconds without a connected broker."""
    ends: Mapping[Partition, int] = field(default_factory=dict)
    """The offset after the last one that may be read, for each partition where it is known."""
    starts: Mapping[Partition, int] = field(default_factory=dict)
    """The offset at which reading began, for each assigned partition."""
    topic_partitions: Mapping[str, int] = field(default_factory=dict)
    """The number of partitions of each topic."""
    silent_s: float = 0.0
    """Seconds without a record from a partition that has more to read; the longest of several."""
    unstable: Mapping[Partition, Unstable] = field(default_factory=dict)
    """The offsets that are not stable, for each partition that is being fetched."""


REQUEST_OUTCOMES = ("found", "unknown", "unusable", "unavailable", "given_up", "changed")
"""How a request for a schema ends."""


@dataclass(frozen=True, slots=True)
class SchemaState:
    """The requests for schemas, and whether the registry answers."""

    requests: Mapping[str, int] = field(default_factory=dict)
    """The number of requests since the start, by outcome."""
    away_s: float = 0.0
    """Seconds since nobody has answered about a schema that articles wait for; 0 if there is no such schema."""
    wanted: int = 0
    """Schemas that articles wait for."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state of a worker. Its fields are not from exactly the same instant, because the loop goes on."""

    state: WorkerState
    connection: Connection
    partitions: int
    lags: Mapping[Partition, int]
    """Offsets between the committable one and the end, for each assigned partition where both are known."""
    unstable: Mapping[Partition, Unstable]
    """The offsets that open transactions hold back, for each assigned partition where that is known."""
    oldest_age_s: float
    """Age of the oldest record known to be unprocessed, by its Kafka timestamp; 0 without one.

    At least the time since brokers stopped answering: a record may have been published right after that."""
    in_flight_articles: int
    in_flight_bytes: int
    held_back_articles: int
    """Finished articles that wait for an earlier offset of their partition."""
    queued_windows: int
    queued_tokens: int
    budget_tokens: int
    concurrency: int
    engine_busy_s: float
    """Seconds of runs since the start, summed over the threads."""
    engine_starved_s: float
    """Seconds since the start in which threads had no work despite a backlog, summed over the threads."""
    turn_age_s: float
    """Seconds since the current turn of the loop began."""
    schemas: SchemaState | None = None
    """The state of the registry; None if articles need no schemas."""
    waiting_articles: int = 0
    """Articles that wait for their schema."""
    waiting: Mapping[Partition, int] = field(default_factory=dict)
    """Articles that wait for their schema, for each partition that has any."""
    dead_letter_limits: Mapping[str, float] = field(default_factory=dict)
    """How much of each dead-letter limit is used up, 0 to 1, by the limit's name; only limits that are set."""
