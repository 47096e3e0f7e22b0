"""Exports metrics and traces by OTLP, configured by the standard `OTEL_*` variables. The only user of OpenTelemetry's SDK.

Off unless an endpoint is set (`OTEL_EXPORTER_OTLP_ENDPOINT`, or the one for metrics or traces alone). Counters and gauges
are observable instruments. Histograms are counted by the worker (`stats/histogram.py`, because recording in the SDK takes
6 µs, a tenth of what a headline costs in all) and added to the others just before the export.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, cast

from opentelemetry.metrics import CallbackOptions, Meter, Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricExporter,
    MetricExportResult,
    MetricsData,
    PeriodicExportingMetricReader,
    ResourceMetrics,
    ScopeMetrics,
)
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.sampling import ParentBased

from enricher.errors import SettingsError
from enricher.telemetry.instruments import INSTRUMENTS, Instrument, Kind
from enricher.telemetry.observed import Observed
from enricher.telemetry.tracing import Spans

log = logging.getLogger(__name__)

SCOPE = "enricher"


def wanted(signal: str, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether the standard variables ask for the export of `signal` ("metrics" or "traces")."""
    if environment.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    chosen = environment.get(f"OTEL_{signal.upper()}_EXPORTER")
    if chosen is not None:
        return chosen.strip() == "otlp"
    return any(
        environment.get(name)
        for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT")
    )


def resource_of(version: str, instance: str) -> Resource:
    """Attributes of this process; `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES` override ours."""
    own = {"service.name": "enricher", "service.version": version, "service.instance.id": instance}
    return Resource.create(own).merge(OTELResourceDetector().detect())


@contextmanager
def exported_metrics(observed: Observed, resource: Resource) -> Iterator[None]:
    """Export metrics every minute (`OTEL_METRIC_EXPORT_INTERVAL`) while the body runs, and once at its end."""
    if not wanted("metrics"):
        yield
        return
    with _as_settings_errors():
        exporter = _WithHistograms(_exporter("metrics"), observed)
        provider = MeterProvider([PeriodicExportingMetricReader(exporter)], resource)
    meter = provider.get_meter(SCOPE, observed.worker.version)
    for instrument in INSTRUMENTS:
        if instrument.numbers:
            _register(meter, instrument, observed)
    log.info("exporting metrics by OTLP")
    try:
        yield
    finally:
        provider.shutdown()


@contextmanager
def exported_spans(
    resource: Resource, *, version: str, input_topic: str, output_topic: str, group: str
) -> Iterator[Spans | None]:
    """Yield a maker of spans, sampled as `OTEL_TRACES_SAMPLER` says, or None if traces are off. Flushes them at the end."""
    if not wanted("traces"):
        yield None
        return
    with _as_settings_errors():
        provider = TracerProvider(resource=resource)
        provider.add_span_processor(BatchSpanProcessor(_exporter("traces")))
    log.info("exporting traces by OTLP, sampler %s", provider.sampler.get_description())
    try:
        yield Spans(
            provider.get_tracer(SCOPE, version),
            input_topic=input_topic,
            output_topic=output_topic,
            group=group,
            honours_parents=isinstance(provider.sampler, ParentBased),
        )
    finally:
        provider.shutdown()


@contextmanager
def _as_settings_errors() -> Iterator[None]:
    """Raise SettingsError for values of `OTEL_*` that the SDK refuses. For most mistakes it only logs a warning."""
    try:
        yield
    except SettingsError:
        raise
    except Exception as error:
        raise SettingsError(f"the OTEL_... variables: {error}") from error


def _unquoted(record: logging.LogRecord) -> bool:
    """Hide the malformed header that the SDK quotes from `OTEL_EXPORTER_OTLP_HEADERS`: it may be a token."""
    if record.args:
        record.args = ("(not shown: it may hold a secret)",) * len(record.args)
    return True


logging.getLogger("opentelemetry.util.re").addFilter(_unquoted)


def _exporter(signal: str) -> Any:  # noqa: ANN401  one of four classes
    """An exporter over HTTP or, with the extra `grpc`, over gRPC. Imported here, since gRPC need not be installed."""
    general = os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
    protocol = os.environ.get(f"OTEL_EXPORTER_OTLP_{signal.upper()}_PROTOCOL", general)
    if protocol == "http/protobuf":
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter  # noqa: PLC0415
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415

        return OTLPMetricExporter() if signal == "metrics" else OTLPSpanExporter()
    if protocol == "grpc":
        return _grpc_exporter(signal)
    message = f"OTEL_EXPORTER_OTLP_PROTOCOL: '{protocol}' is neither http/protobuf nor grpc"
    raise SettingsError(message)


def _grpc_exporter(signal: str) -> MetricExporter | SpanExporter:
    try:
        from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter  # noqa: PLC0415
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
    except ImportError as error:
        message = "OTEL_EXPORTER_OTLP_PROTOCOL is grpc: install the extra `grpc`, or use http/protobuf"
        raise SettingsError(message) from error
    return OTLPMetricExporter() if signal == "metrics" else OTLPSpanExporter()


def _register(meter: Meter, instrument: Instrument, observed: Observed) -> None:
    create = meter.create_observable_counter if instrument.kind is Kind.COUNTER else meter.create_observable_gauge
    create(instrument.name, [_observing(instrument, observed)], instrument.unit, instrument.description)


def _observing(instrument: Instrument, observed: Observed) -> Callable[[CallbackOptions], Iterable[Observation]]:
    read = instrument.numbers
    assert read is not None

    def observe(_options: CallbackOptions) -> Iterable[Observation]:
        return [Observation(number, dict(attributes)) for number, attributes in read(observed)]

    return observe


class _WithHistograms(MetricExporter):
    """Adds our histograms to what the SDK has collected. They are always cumulative."""

    def __init__(self, exporter: MetricExporter, observed: Observed) -> None:
        super().__init__(exporter._preferred_temporality, exporter._preferred_aggregation)  # noqa: SLF001  as the SDK's reader reads them
        self._exporter = exporter
        self._observed = observed
        self._started_ns = time.time_ns()

    def export(self, metrics_data: MetricsData, timeout_millis: float = 10_000, **named: Any) -> MetricExportResult:  # noqa: ANN401  the SDK's
        """Export, with our histograms added to our own scope."""
        complete = [
            ResourceMetrics(
                each.resource, [_with(scope, self._histograms()) for scope in each.scope_metrics], each.schema_url
            )
            for each in metrics_data.resource_metrics
        ]
        return self._exporter.export(MetricsData(complete), timeout_millis, **named)

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        """Flush the wrapped exporter."""
        return self._exporter.force_flush(timeout_millis)

    def shutdown(self, timeout_millis: float = 30_000, **named: Any) -> None:  # noqa: ANN401  the SDK's
        """Shut the wrapped exporter down."""
        self._exporter.shutdown(timeout_millis, **named)

    def _histograms(self) -> list[Metric]:
        now_ns = time.time_ns()
        return [
            _histogram(instrument, self._observed, self._started_ns, now_ns)
            for instrument in INSTRUMENTS
            if instrument.histogram
        ]


def _with(scope: ScopeMetrics, more: list[Metric]) -> ScopeMetrics:
    ours = scope.scope.name == SCOPE
    return ScopeMetrics(scope.scope, [*scope.metrics, *(more if ours else [])], scope.schema_url)


def _histogram(instrument: Instrument, observed: Observed, started_ns: int, now_ns: int) -> Metric:
    assert instrument.histogram is not None
    histogram, attributes = instrument.histogram(observed)
    counts = list(histogram.counts)
    unknown = cast(
        "float", None
    )  # the smallest and the largest value are not recorded; None leaves them out of the message
    point = HistogramDataPoint(
        attributes=dict(attributes),
        start_time_unix_nano=started_ns,
        time_unix_nano=now_ns,
        count=sum(counts),
        sum=histogram.sum,
        bucket_counts=counts,
        explicit_bounds=list(histogram.bounds),
        min=unknown,
        max=unknown,
    )
    data = Histogram([point], AggregationTemporality.CUMULATIVE)
    return Metric(instrument.name, instrument.description, instrument.unit, data)
