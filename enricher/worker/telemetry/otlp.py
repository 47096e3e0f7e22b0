"""Exports metrics and traces by OTLP, configured by the standard `OTEL_*` variables. The only user of OpenTelemetry's SDK.

Off unless an endpoint is set: `OTEL_EXPORTER_OTLP_ENDPOINT`, or the variable for metrics or traces alone. Counters and
gauges are observable instruments. The worker counts histograms itself (`worker/stats.py`), and they are added just before
the export, because recording one value in the SDK takes 6 µs, a tenth of the whole cost of a headline.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import Any, Protocol, TypeVar, cast

from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricExporter,
    MetricsData,
    PeriodicExportingMetricReader,
)
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ParentBased

from enricher.errors import SettingsError
from enricher.worker import stats
from enricher.worker.telemetry.instruments import Instrument, Kind
from enricher.worker.telemetry.observed import WorkerFacts
from enricher.worker.telemetry.tracing import Spans

log = logging.getLogger(__name__)

SCOPE = "enricher"


class _HasWorker(Protocol):
    @property
    def worker(self) -> WorkerFacts: ...


Seen = TypeVar("Seen", bound=_HasWorker)
"""An observed process, with its identity."""
_EXPORTERS = {"metrics": ("metric_exporter", "OTLPMetricExporter"), "traces": ("trace_exporter", "OTLPSpanExporter")}
"""The module and the class of OpenTelemetry's exporter for each signal, the same for both protocols."""


def is_wanted(signal: str, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether the standard variables ask for the export of `signal` ("metrics" or "traces")."""
    if environment.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    # A list, of which we have one; empty is as if it were unset, by OpenTelemetry's rule for all variables.
    chosen = environment.get(f"OTEL_{signal.upper()}_EXPORTER", "").strip().lower()
    if chosen:
        return "otlp" in [name.strip() for name in chosen.split(",")]
    return any(
        environment.get(name)
        for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT")
    )


def resource_of(worker: WorkerFacts) -> Resource:
    """Attributes of this process; `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES` override ours."""
    own = {"service.name": "enricher", "service.version": worker.version, "service.instance.id": worker.instance}
    return Resource.create(own).merge(OTELResourceDetector().detect())


@contextmanager
def export_metrics(observed: Seen, instruments: Sequence[Instrument[Seen]]) -> Iterator[None]:
    """Export metrics every minute (`OTEL_METRIC_EXPORT_INTERVAL`) while the body runs, and once at its end."""
    if not is_wanted("metrics"):
        yield
        return
    with _as_settings_errors():
        provider = MeterProvider([_Reader(_exporter("metrics"), observed, instruments)], resource_of(observed.worker))
    meter = provider.get_meter(SCOPE, observed.worker.version)
    create = {Kind.COUNTER: meter.create_observable_counter, Kind.GAUGE: meter.create_observable_gauge}
    for each in instruments:
        if each.kind in create:
            create[each.kind](each.name, [partial(_observe, each, observed)], each.unit, each.description)
    log.info("exporting metrics by OTLP")
    try:
        yield
    finally:
        provider.shutdown()


@contextmanager
def export_spans(worker: WorkerFacts) -> Iterator[Spans | None]:
    """Yield a maker of spans, sampled as `OTEL_TRACES_SAMPLER` says, or None if traces are off. Flushes them at the end."""
    if not is_wanted("traces"):
        yield None
        return
    with _as_settings_errors():
        provider = TracerProvider(resource=resource_of(worker))
        provider.add_span_processor(BatchSpanProcessor(_exporter("traces")))
    log.info("exporting traces by OTLP, sampler %s", provider.sampler.get_description())
    try:
        honours_parents = isinstance(provider.sampler, ParentBased)
        yield Spans(provider.get_tracer(SCOPE, worker.version), worker, honours_parents=honours_parents)
    finally:
        provider.shutdown()


@contextmanager
def _as_settings_errors() -> Iterator[None]:
    """Turn errors of the SDK about values of `OTEL_*` into SettingsError. For most mistakes it only logs a warning."""
    try:
        yield
    except SettingsError:
        raise
    except Exception as error:
        raise SettingsError(f"the OTEL_... variables: {error}") from error


def _hide_header(record: logging.LogRecord) -> bool:
    """Hide the malformed header in `OTEL_EXPORTER_OTLP_HEADERS`, which the SDK quotes: it may be a token."""
    if record.args:
        record.args = ("(not shown: it may hold a secret)",) * len(record.args)
    return True


logging.getLogger("opentelemetry.util.re").addFilter(_hide_header)


def _exporter(signal: str) -> Any:  # noqa: ANN401  one of four classes
    """An exporter over HTTP or gRPC. Imported here, because gRPC needs the extra `grpc`."""
    general = os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
    protocol = os.environ.get(f"OTEL_EXPORTER_OTLP_{signal.upper()}_PROTOCOL", general)
    if protocol not in {"http/protobuf", "grpc"}:
        message = f"OTEL_EXPORTER_OTLP_PROTOCOL: '{protocol}' is neither http/protobuf nor grpc"
        raise SettingsError(message)
    module, name = _EXPORTERS[signal]
    try:
        found = import_module(f"opentelemetry.exporter.otlp.proto.{protocol.removesuffix('/protobuf')}.{module}")
    except ImportError as error:
        message = f"OTEL_EXPORTER_OTLP_PROTOCOL is {protocol}: install the extra `grpc`, or use http/protobuf"
        raise SettingsError(message) from error
    return getattr(found, name)()


def _observe(instrument: Instrument[Any], observed: object, _options: CallbackOptions) -> Iterator[Observation]:
    for number, values in instrument.read(observed):
        assert not isinstance(number, stats.Histogram), "_Reader exports histograms"
        yield Observation(number, _attributes(instrument, values))


class _Reader(PeriodicExportingMetricReader):
    """The SDK's reader; adds our histograms, which are always cumulative, to what the SDK has collected."""

    def __init__(self, exporter: MetricExporter, observed: object, instruments: Sequence[Instrument[Any]]) -> None:
        self._observed = observed
        self._histograms = [each for each in instruments if each.kind is Kind.HISTOGRAM]
        self._started_ns = time.time_ns()
        super().__init__(exporter)  # it starts a thread

    def _receive_metrics(self, metrics_data: MetricsData, timeout_millis: float = 10_000, **named: Any) -> None:  # noqa: ANN401  the SDK's
        """Add our histograms to our own scope, and export."""
        ours = [self._histogram(each) for each in self._histograms]
        complete = [
            replace(
                each,
                scope_metrics=[
                    replace(scope, metrics=[*scope.metrics, *ours]) if scope.scope.name == SCOPE else scope
                    for scope in each.scope_metrics
                ],
            )
            for each in metrics_data.resource_metrics
        ]
        super()._receive_metrics(MetricsData(complete), timeout_millis, **named)

    def _histogram(self, instrument: Instrument[Any]) -> Metric:
        ((histogram, values),) = instrument.read(self._observed)
        assert isinstance(histogram, stats.Histogram)
        counts = list(histogram.counts)  # a copy, because the loop's thread goes on counting
        point = HistogramDataPoint(
            attributes=_attributes(instrument, values),
            start_time_unix_nano=self._started_ns,
            time_unix_nano=time.time_ns(),
            count=sum(counts),
            sum=histogram.sum,
            bucket_counts=counts,
            explicit_bounds=histogram.bounds,
            # The smallest and the largest value are not recorded; None leaves them out of the message.
            min=cast("float", None),
            max=cast("float", None),
        )
        data = Histogram([point], AggregationTemporality.CUMULATIVE)
        return Metric(instrument.name, instrument.description, instrument.unit, data)


def _attributes(instrument: Instrument[Any], values: tuple[str, ...]) -> dict[str, str]:
    return dict(zip(instrument.attributes, values, strict=True))
