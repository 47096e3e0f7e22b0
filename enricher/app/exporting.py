"""Settings -> traces and metrics exported by OTLP, if the `OTEL_*` variables ask for it."""

from __future__ import annotations

from contextlib import AbstractContextManager
from importlib.metadata import version

from enricher.settings import Settings
from enricher.telemetry.observed import Observed
from enricher.telemetry.otlp import exported_metrics, exported_spans, resource_of
from enricher.telemetry.tracing import Spans


def traces_of(settings: Settings) -> AbstractContextManager[Spans | None]:
    """Export traces while the body runs; gives None if they are off. Raises SettingsError."""
    kafka, number = settings.kafka, version("enricher")
    return exported_spans(
        resource_of(number, kafka.instance),
        version=number,
        input_topic=kafka.input_topic,
        output_topic=kafka.output_topic,
        group=kafka.group_id,
    )


def metrics_of(observed: Observed) -> AbstractContextManager[None]:
    """Export the metrics of a worker while the body runs. Raises SettingsError."""
    return exported_metrics(observed, resource_of(observed.worker.version, observed.worker.instance))
