"""Exports traces by OTLP, configured by the standard `OTEL_*` variables. The only user of OpenTelemetry's SDK.

Off unless an endpoint is set: `OTEL_EXPORTER_OTLP_ENDPOINT`, or the variable for traces alone. Metrics are scraped
(`prometheus.py`): a collector does that with its Prometheus receiver.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ParentBased

from enricher.errors import SettingsError
from enricher.worker.telemetry.observed import WorkerFacts
from enricher.worker.telemetry.tracing import Spans

log = logging.getLogger(__name__)

SCOPE = "enricher"


def is_wanted(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether the standard variables ask for the export of traces."""
    if environment.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    # A list, of which we have one; empty is as if it were unset, by OpenTelemetry's rule for all variables.
    chosen = environment.get("OTEL_TRACES_EXPORTER", "").strip().lower()
    if chosen:
        return "otlp" in [name.strip() for name in chosen.split(",")]
    return any(map(environment.get, ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")))


def resource_of(worker: WorkerFacts) -> Resource:
    """Attributes of this process; `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES` override ours."""
    own = {"service.name": "enricher", "service.version": worker.version, "service.instance.id": worker.instance}
    return Resource.create(own).merge(OTELResourceDetector().detect())


@contextmanager
def export_spans(worker: WorkerFacts) -> Iterator[Spans | None]:
    """Yield a maker of spans, sampled as `OTEL_TRACES_SAMPLER` says, or None if traces are off. Flushes them at the end."""
    if not is_wanted():
        yield None
        return
    try:
        provider = TracerProvider(resource=resource_of(worker))
        provider.add_span_processor(BatchSpanProcessor(_exporter()))
    except SettingsError:
        raise
    except Exception as error:  # of the SDK, about a value; for most mistakes it only logs a warning
        raise SettingsError(f"the OTEL_... variables: {error}") from error
    log.info("exporting traces by OTLP, sampler %s", provider.sampler.get_description())
    try:
        honours_parents = isinstance(provider.sampler, ParentBased)
        yield Spans(provider.get_tracer(SCOPE, worker.version), worker, honours_parents=honours_parents)
    finally:
        provider.shutdown()


def _hide_header(record: logging.LogRecord) -> bool:
    """Hide the malformed header in `OTEL_EXPORTER_OTLP_HEADERS`, which the SDK quotes: it may be a token."""
    if record.args:
        record.args = ("(not shown: it may hold a secret)",) * len(record.args)
    return True


logging.getLogger("opentelemetry.util.re").addFilter(_hide_header)


def _exporter() -> Any:  # noqa: ANN401  one of two classes
    """An exporter over HTTP or gRPC. Imported here, because gRPC needs the extra `grpc`."""
    general = os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
    protocol = os.environ.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", general)
    if protocol not in {"http/protobuf", "grpc"}:
        message = f"OTEL_EXPORTER_OTLP_PROTOCOL: '{protocol}' is neither http/protobuf nor grpc"
        raise SettingsError(message)
    try:
        found = import_module(f"opentelemetry.exporter.otlp.proto.{protocol.removesuffix('/protobuf')}.trace_exporter")
    except ImportError as error:
        message = f"OTEL_EXPORTER_OTLP_PROTOCOL is {protocol}: install the extra `grpc`, or use http/protobuf"
        raise SettingsError(message) from error
    return found.OTLPSpanExporter()
