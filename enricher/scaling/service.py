"""KEDA's external scaler over gRPC: what it asks and what it gets. The numbers come from `watching` and `policy`.

The metric is the number of workers that is wanted, with a target of 1 for each: Kubernetes' autoscaler divides the two, so
its own formula (`ceil(metric / target)`, of metric type AverageValue, KEDA's default) gives that number back.
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

from enricher.errors import BrokerError, SettingsError
from enricher.scaling.asked import Asked, BadMetadata
from enricher.scaling.health import Health
from enricher.scaling.keda import externalscaler_pb2 as messages
from enricher.scaling.watching import Seen, TooMany, Watches

METRIC = "wanted-workers"
TARGET = 1
SERVICE = "externalscaler.ExternalScaler"
_STREAM_EVERY_S = 5.0
_THREADS = 40
_MOST_STREAMS = 16
"""Each holds a thread for as long as it lasts. The rest is for questions: of other groups 16 at once, so that some are left
for the configured one and for probes. KEDA asks again for a stream that it did not get, and goes on polling meanwhile."""
_GRACE_S = 5.0
_CODES = {
    BadMetadata: grpc.StatusCode.INVALID_ARGUMENT,
    BrokerError: grpc.StatusCode.UNAVAILABLE,
    SettingsError: grpc.StatusCode.FAILED_PRECONDITION,
    TooMany: grpc.StatusCode.RESOURCE_EXHAUSTED,
}


class ExternalScaler:
    """Answers KEDA. `default`: what counts where a ScaledObject's metadata say nothing."""

    def __init__(self, watches: Watches, default: Asked, *, stream_every_s: float = _STREAM_EVERY_S) -> None:
        self._watches = watches
        self._default = default
        self._stream_every_s = stream_every_s
        self._streams = threading.BoundedSemaphore(_MOST_STREAMS)
        self.stopping = threading.Event()

    def is_active(self, request: messages.ScaledObjectRef, context: Any) -> messages.IsActiveResponse:  # noqa: ANN401
        """Whether there must be a worker at all."""
        return messages.IsActiveResponse(result=self._seen(request, context).active)

    def stream_is_active(
        self,
        request: messages.ScaledObjectRef,
        context: Any,  # noqa: ANN401
    ) -> Iterator[messages.IsActiveResponse]:
        """The same at once, and whenever it changes: KEDA's `external-push` starts the first worker by it."""
        if not self._streams.acquire(blocking=False):
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"one scaler has {_MOST_STREAMS} streams at most")
        try:
            yield from self._changes(request, context)
        finally:
            self._streams.release()

    def _changes(self, request: messages.ScaledObjectRef, context: Any) -> Iterator[messages.IsActiveResponse]:  # noqa: ANN401
        before = None
        while context.is_active() and not self.stopping.is_set():
            active = self._seen(request, context).active
            if active != before:
                yield messages.IsActiveResponse(result=active)
            before = active
            self.stopping.wait(self._stream_every_s)

    def metric_spec(self, request: messages.ScaledObjectRef, context: Any) -> messages.GetMetricSpecResponse:  # noqa: ANN401
        """The metric's name and target; asks no broker."""
        with _told(context):
            self._asked(request)
        spec = messages.MetricSpec(metricName=METRIC, targetSize=TARGET, targetSizeFloat=TARGET)
        return messages.GetMetricSpecResponse(metricSpecs=[spec])

    def metrics(self, request: messages.GetMetricsRequest, context: Any) -> messages.GetMetricsResponse:  # noqa: ANN401
        """The metric's value."""
        wanted = self._seen(request.scaledObjectRef, context).wanted
        value = messages.MetricValue(metricName=METRIC, metricValue=wanted, metricValueFloat=wanted)
        return messages.GetMetricsResponse(metricValues=[value])

    def handler(self) -> Any:  # noqa: ANN401  gRPC has no types
        """What a gRPC server is given. `StreamMetricSpec` is left out, as the contract allows: the target never changes."""
        methods: dict[str, Callable[..., Any]] = {
            "IsActive": self.is_active,
            "StreamIsActive": self.stream_is_active,
            "GetMetricSpec": self.metric_spec,
            "GetMetrics": self.metrics,
        }
        return grpc.method_handlers_generic_handler(
            SERVICE, {name: _handler(name, method) for name, method in methods.items()}
        )

    def _asked(self, request: messages.ScaledObjectRef) -> Asked:
        return self._default.changed_by(dict(request.scalerMetadata))

    def _seen(self, request: messages.ScaledObjectRef, context: Any) -> Seen:  # noqa: ANN401
        with _told(context):
            return self._watches.see(self._asked(request), context.time_remaining())


@contextmanager
def _told(context: Any) -> Iterator[None]:  # noqa: ANN401  gRPC has no types
    """An error of ours becomes gRPC's: KEDA then keeps what there is, or takes its fallback."""
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


@dataclass(frozen=True, slots=True)
class Tls:
    """Files in PEM. With `client_ca` only clients with a certificate of it are let in."""

    certificate: Path
    key: Path
    client_ca: Path | None = None

    def credentials(self) -> Any:  # noqa: ANN401  gRPC has no types
        """As gRPC takes them. Raises SettingsError."""
        try:
            pair = self.key.read_bytes(), self.certificate.read_bytes()
            ca = self.client_ca.read_bytes() if self.client_ca else None
        except OSError as error:
            raise SettingsError(f"{error.filename} cannot be read: {error.strerror}") from None
        return grpc.ssl_server_credentials([pair], root_certificates=ca, require_client_auth=ca is not None)


@contextmanager
def serving(scaler: ExternalScaler, address: str, tls: Tls | None = None) -> Iterator[int]:
    """Answers at `address` (`host:port`; port 0 takes a free one) in the body, and gives the port. Raises SettingsError."""
    health = Health(SERVICE)
    # Two servers on one port would both be asked, in turn.
    server = grpc.server(ThreadPoolExecutor(_THREADS, "scaler"), options=[("grpc.so_reuseport", 0)])
    server.add_generic_rpc_handlers((scaler.handler(), health.handler()))
    try:
        port = server.add_secure_port(address, tls.credentials()) if tls else server.add_insecure_port(address)
    except RuntimeError as error:  # gRPC does not tell what it was
        why = "the port may be taken, the address not this machine's"
        why += ", or certificate and key no pair in PEM" if tls else ""
        raise SettingsError(f"cannot listen on {address}: {why}") from error
    server.start()
    try:
        yield port
    finally:
        health.serving = False
        scaler.stopping.set()
        server.stop(_GRACE_S).wait()
