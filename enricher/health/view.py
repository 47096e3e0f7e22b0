"""What the status page sees of a worker: facts that do not change, and where to look for the rest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from enricher.health.liveness import Waits
from enricher.runtime.watchdog import Watched
from enricher.stats.counters import Counters
from enricher.stats.snapshot import Snapshot
from enricher.worker.recovery import RecoveryNote


@dataclass(frozen=True, slots=True)
class Facts:
    """Who this is, known before anything is loaded."""

    instance: str
    group: str
    input_topic: str
    output_topic: str
    dead_letter_topic: str
    version: str


class ModelFacts(Protocol):
    """Which model, and how it runs."""

    @property
    def name(self) -> str:
        """As it calls itself."""

    @property
    def digest(self) -> str:
        """SHA-256 of its weights and labels."""

    @property
    def precision(self) -> str:
        """Such as `fp16`."""

    @property
    def provider(self) -> str:
        """As ONNX Runtime names it."""

    @property
    def device(self) -> str:
        """`cpu` or `cuda`."""


class GpuUse(Protocol):
    """One GPU at this moment."""

    @property
    def name(self) -> str:
        """As its maker calls it."""

    @property
    def utilization(self) -> float:
        """Share of time in which a kernel ran, 0 to 1."""

    @property
    def used_bytes(self) -> int:
        """Of its memory."""

    @property
    def total_bytes(self) -> int:
        """Of its memory."""


@dataclass(frozen=True, slots=True)
class View:
    """A worker that is built. All callables are quick, and may be called from any thread."""

    model: ModelFacts
    counters: Counters
    snapshot: Callable[[], Snapshot]
    watched: Callable[[], Watched | None]
    waits: Callable[[], Waits]
    recoveries: Callable[[], Sequence[RecoveryNote]]
    metrics: Callable[[str], tuple[bytes, str]]
    """The exposition in the form that an `Accept` header asks for, and its content type."""
    gpus: Callable[[], Sequence[GpuUse]] = tuple
