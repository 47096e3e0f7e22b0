"""KEDA's external scaler over gRPC, and gRPC's health check. The numbers come from `watching` and `policy`.

The metric is the wanted number of workers, with a target of 1 for each. Kubernetes' autoscaler computes
`ceil(metric / target)` (metric type AverageValue, KEDA's default), so it arrives at that number.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.wrappers_pb2 import Int32Value, StringValue

from enricher.errors import BrokerError, SettingsError
from enricher.scaling.keda import externalscaler_pb2 as messages
from enricher.scaling.trigger import BadMetadata, Trigger
from enricher.scaling.watching import Seen, TooMany, Watches, held

METRIC = "wanted-workers"
TARGET = 1
SERVICE = "externalscaler.ExternalScaler"
_STREAM_EVERY_S = 5.0
_THREADS = 40
_MAX_STREAMS = 16
"""Each stream holds a thread while it lasts, and calls for other groups take at most 16 more: the rest is for the configured
group and for probes. KEDA retries a stream that was refused, and polls meanwhile."""
_GRACE_S = 5.0
_SERVING, _NOT_SERVING = 1, 2  # of `grpc.health.v1`
_CODES = {
    BadMetadata: grpc.StatusCode.INVALID_ARGUMENT,
    BrokerError: grpc.StatusCode.UNAVAILABLE,
    SettingsError: grpc.StatusCode.FAILED_PRECONDITION,
    TooMany: grpc.StatusCode.RESOURCE_EXHAUSTED,
}


class ExternalScaler:
    """Answers KEDA. `default` holds for what a ScaledObject's metadata leave out."""

    def __init__(self, watches: Watches, default: Trigger, *, stream_every_s: float = _STREAM_EVERY_S) -> None:
        self._watches = watches
        self._default = default
        self._stream_every_s = stream_every_s
        self._streams = threading.BoundedSemaphore(_MAX_STREAMS)
        self.stopping = threading.Event()

    def is_active(self, request: messages.ScaledObjectRef, context: Any) -> messages.IsActiveResponse:  # noqa: ANN401
        """Whether at least one worker is needed."""
        return messages.IsActiveResponse(result=self._seen(request, context).active)

    def stream_is_active(
        self,
        request: messages.ScaledObjectRef,
        context: Any,  # noqa: ANN401
    ) -> Iterator[messages.IsActiveResponse]:
        """`is_active` now and at each change; KEDA's `external-push` starts the first worker by it."""
        before = None
        with _grpc_errors(context), held(self._streams, TooMany(f"one scaler has at most {_MAX_STREAMS} streams")):
            while context.is_active() and not self.stopping.is_set():
                active = self._seen(request, context).active
                if active != before:
                    yield messages.IsActiveResponse(result=active)
                before = active
                self.stopping.wait(self._stream_every_s)

    def metric_spec(self, request: messages.ScaledObjectRef, context: Any) -> messages.GetMetricSpecResponse:  # noqa: ANN401
        """The metric's name and target; asks no broker."""
        with _grpc_errors(context):
            self._trigger(request)
        spec = messages.MetricSpec(metricName=METRIC, targetSize=TARGET, targetSizeFloat=TARGET)
        return messages.GetMetricSpecResponse(metricSpecs=[spec])

    def metrics(self, request: messages.GetMetricsRequest, context: Any) -> messages.GetMetricsResponse:  # noqa: ANN401
        """The metric's value: the wanted number of workers."""
        wanted = self._seen(request.scaledObjectRef, context).wanted
        value = messages.MetricValue(metricName=METRIC, metricValue=wanted, metricValueFloat=wanted)
        return messages.GetMetricsResponse(metricValues=[value])

    def handler(self) -> Any:  # noqa: ANN401  gRPC has no types
        """The service for a gRPC server. `StreamMetricSpec` is left out, which is allowed: the target never changes."""
        methods: dict[str, Callable[..., Any]] = {
            "IsActive": self.is_active,
            "StreamIsActive": self.stream_is_active,
            "GetMetricSpec": self.metric_spec,
            "GetMetrics": self.metrics,
        }
        return grpc.method_handlers_generic_handler(
            SERVICE, {name: _handler(name, method) for name, method in methods.items()}
        )

    def _trigger(self, request: messages.ScaledObjectRef) -> Trigger:
        return self._default.changed_by(dict(request.scalerMetadata))

    def _seen(self, request: messages.ScaledObjectRef, context: Any) -> Seen:  # noqa: ANN401
        with _grpc_errors(context):
            return self._watches.see(self._trigger(request), context.time_remaining())


@contextmanager
def _grpc_errors(context: Any) -> Iterator[None]:  # noqa: ANN401  gRPC has no types
    """Map our errors to gRPC's; KEDA then keeps the number of workers, or takes its fallback."""
    try:
        yield
    except tuple(_CODES) as error:
        code = next(code for kind, code in _CODES.items() if isinstance(error, kind))
        context.abort(code, str(error))


def _handler(name: str, method: Callable[..., Any]) -> Any:  # noqa: ANN401  gRPC has no types
    described = messages.DESCRIPTOR.services_by_name["ExternalScaler"].methods_by_name[name]
    make = grpc.unary_stream_rpc_method_handler if described.server_streaming else grpc.unary_unary_rpc_method_handler
    return make(
        method,
        request_deserializer=getattr(messages, described.input_type.name).FromString,
        response_serializer=getattr(messages, described.output_type.name).SerializeToString,
    )


def health_handler(stopping: threading.Event) -> Any:  # noqa: ANN401  gRPC has no types
    """GRPC's health check (`grpc.health.v1.Health/Check`), which Kubernetes probes call, for a gRPC server.

    Says whether the server takes calls; whether the brokers answer is reported by each call. The empty name means the whole
    server. `Watch` is not implemented, which the protocol allows.
    """

    def check(request: StringValue, context: Any) -> Int32Value:  # noqa: ANN401  gRPC has no types
        if request.value not in {"", SERVICE}:
            context.abort(grpc.StatusCode.NOT_FOUND, f"there is no service '{request.value}' here")
        return Int32Value(value=_NOT_SERVING if stopping.is_set() else _SERVING)

    # Request and response have one field each, a string and an enum, and are encoded like these wrappers.
    method = grpc.unary_unary_rpc_method_handler(
        check, request_deserializer=StringValue.FromString, response_serializer=Int32Value.SerializeToString
    )
    return grpc.method_handlers_generic_handler("grpc.health.v1.Health", {"Check": method})


@dataclass(frozen=True, slots=True)
class Tls:
    """PEM files. With `client_ca`, clients need a certificate that it has signed."""

    certificate: Path
    key: Path
    client_ca: Path | None = None

    def credentials(self) -> Any:  # noqa: ANN401  gRPC has no types
        """Raises SettingsError if a file cannot be read."""
        try:
            pair = self.key.read_bytes(), self.certificate.read_bytes()
            ca = self.client_ca.read_bytes() if self.client_ca else None
        except OSError as error:
            raise SettingsError(f"{error.filename} cannot be read: {error.strerror}") from None
        return grpc.ssl_server_credentials([pair], root_certificates=ca, require_client_auth=ca is not None)


@contextmanager
def serving(scaler: ExternalScaler, address: str, tls: Tls | None = None) -> Iterator[int]:
    """Serve at `address` (`host:port`; port 0 takes a free one) in the body, and yield the port. Raises SettingsError."""
    # With SO_REUSEPORT, two servers on one port would both get calls, in turn.
    server = grpc.server(ThreadPoolExecutor(_THREADS, "scaler"), options=[("grpc.so_reuseport", 0)])
    server.add_generic_rpc_handlers((scaler.handler(), health_handler(scaler.stopping)))
    try:
        port = server.add_secure_port(address, tls.credentials()) if tls else server.add_insecure_port(address)
    except RuntimeError as error:  # gRPC does not say why
        why = "the port may be in use, or the address may not belong to this machine"
        why += ", or certificate and key may not be a pair in PEM" if tls else ""
        raise SettingsError(f"cannot listen on {address}: {why}") from error
    server.start()
    try:
        yield port
    finally:
        scaler.stopping.set()
        server.stop(_GRACE_S).wait()
