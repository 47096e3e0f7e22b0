"""Settings -> traces and metrics exported by OTLP, if the `OTEL_*` variables ask for it."""

from __future__ import annotations

from contextlib import AbstractContextManager

from enricher.app.observing import worker_facts
from enricher.settings import Settings
from enricher.telemetry.observed import Observed
from enricher.telemetry.otlp import exported_metrics, exported_spans
from enricher.telemetry.tracing import Spans


def traces_of(settings: Settings) -> AbstractContextManager[Spans | None]:
    """Export traces while the body runs; gives None if they are off. Raises SettingsError."""
    return exported_spans(worker_facts(settings))


def metrics_of(observed: Observed) -> AbstractContextManager[None]:
    """Export the metrics of a worker while the body runs. Raises SettingsError."""
    return exported_metrics(observed)
