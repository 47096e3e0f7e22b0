"""KEDA's external scaler over gRPC, and gRPC's health check. The numbers come from `watching` and `policy`.

The metric is the wanted number of workers, with a target of 1 for each. Kubernetes' autoscaler computes
`ceil(metric / target)` (metric type AverageValue, KEDA's default), so it arrives at that number.

Anyone who reaches the port may call. So calls are answered by one event loop, which a call without an end does not hold, and
only those that were admitted get a thread to ask the brokers. A call is admitted before its message is read.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import grpc
from google.protobuf.wrappers_pb2 import Int32Value, StringValue

from enricher.errors import BrokerError, SettingsError
from enricher.operate.scaling.keda import externalscaler_pb2 as messages
from enricher.operate.scaling.trigger import BadMetadata, Trigger
from enricher.operate.scaling.watching import Seen, TooMany, Watches

METRIC = "wanted-workers"
TARGET = 1
SERVICE = "externalscaler.ExternalScaler"
_STREAM_EVERY_S = 5.0
_THREADS = 40
"""Calls for other groups take at most 16 of them: the rest is for the configured group."""
_MAX_CALLS = 256
"""Calls that are being answered. One keeps its place until its thread has ended, also if the caller hangs up before."""
_MAX_STREAMS = 16
"""KEDA retries a stream that was refused, and polls meanwhile."""
_MESSAGE_S = 5.0
"""How long a call may take to send its message."""
_MAX_AWAITED = 128
"""Calls that have not sent their message. Of more, the oldest is given up: KEDA and probes send it at once."""
_MAX_RPCS = 1_000
"""Calls of any kind, also those whose answers the caller does not take, which no time bounds."""
_MAX_MESSAGE_BYTES = 32_768
"""KEDA sends a ScaledObject's metadata, which may include certificates."""
_MAX_CONNECTIONS = 1_000
"""20 kB each. KEDA has one or two, and each probe one for a moment."""
_OPTIONS = (
    ("grpc.so_reuseport", 0),  # two servers on one port would both get calls, in turn
    ("grpc.max_allowed_incoming_connections", _MAX_CONNECTIONS),
    ("grpc.max_concurrent_streams", 2 * _MAX_STREAMS),  # KEDA has one connection for all ScaledObjects
    ("grpc.max_receive_message_length", _MAX_MESSAGE_BYTES),
    # How much of a message may arrive before it is read; by default this grows with the sender's speed.
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.lookahead_bytes", 2_048),
    ("grpc.server_handshake_timeout_ms", 10_000),
    ("grpc.max_connection_idle_ms", 300_000),  # KEDA asks every 15 to 30 s, and connects again by itself
)
_GRACE_S = 5.0
_SERVING, _NOT_SERVING = 1, 2  # of `grpc.health.v1`
_CODES = {
    BadMetadata: grpc.StatusCode.INVALID_ARGUMENT,
    BrokerError: grpc.StatusCode.UNAVAILABLE,
    SettingsError: grpc.StatusCode.FAILED_PRECONDITION,
    TooMany: grpc.StatusCode.RESOURCE_EXHAUSTED,
}
Request = Any
"""A message of KEDA's or of the health check."""
Requests = AsyncIterator[Request]
"""The messages of a call, one in all that are served here."""


class ExternalScaler:
    """Answers KEDA. `default` holds for what a ScaledObject's metadata leave out. All methods run on the server's loop."""

    def __init__(self, watches: Watches, default: Trigger, *, stream_every_s: float = _STREAM_EVERY_S) -> None:
        self._watches = watches
        self._default = default
        self._stream_every_s = stream_every_s
        self._threads = ThreadPoolExecutor(_THREADS, "scaler")
        self._calls = _Places(_MAX_CALLS, f"one scaler answers at most {_MAX_CALLS} calls at once")
        self._streams = _Places(_MAX_STREAMS, f"one scaler has at most {_MAX_STREAMS} streams")
        self.messages = _Messages()
        self.stopping = asyncio.Event()
        """Ends the streams."""

    async def is_active(self, request: messages.ScaledObjectRef, context: Any) -> messages.IsActiveResponse:  # noqa: ANN401
        """Whether at least one worker is needed."""
        return messages.IsActiveResponse(result=(await self._newest_look(request, context)).active)

    async def stream_is_active(self, requests: Requests, context: Any) -> AsyncIterator[messages.IsActiveResponse]:  # noqa: ANN401
        """`is_active` now and at each change; KEDA's `external-push` starts the first worker by it."""
        try:
            self._streams.take()
        except TooMany as error:
            await _refuse(context, error)
        try:
            request, before = await self.messages.of(requests, context), None
            while not self.stopping.is_set():
                active = (await self._newest_look(request, context)).active
                if active != before:
                    yield messages.IsActiveResponse(result=active)
                before = active
                await _waited_for(self.stopping, self._stream_every_s)
        finally:
            self._streams.give_back()

    async def metric_spec(self, request: messages.ScaledObjectRef, context: Any) -> messages.GetMetricSpecResponse:  # noqa: ANN401
        """The metric's name and target; asks no broker."""
        try:
            self._trigger(request)
        except BadMetadata as error:
            await _refuse(context, error)
        spec = messages.MetricSpec(metricName=METRIC, targetSize=TARGET, targetSizeFloat=TARGET)
        return messages.GetMetricSpecResponse(metricSpecs=[spec])

    async def metrics(self, request: messages.GetMetricsRequest, context: Any) -> messages.GetMetricsResponse:  # noqa: ANN401
        """The metric's value: the wanted number of workers."""
        wanted = (await self._newest_look(request.scaledObjectRef, context)).wanted
        value = messages.MetricValue(metricName=METRIC, metricValue=wanted, metricValueFloat=wanted)
        return messages.GetMetricsResponse(metricValues=[value])

    def handler(self) -> Any:  # noqa: ANN401  gRPC has no types
        """The service for a gRPC server. `StreamMetricSpec` is left out, which is allowed: the target never changes."""
        methods: dict[str, Callable[[Request, Any], Awaitable[Any]]] = {
            "IsActive": self.is_active,
            "GetMetricSpec": self.metric_spec,
            "GetMetrics": self.metrics,
        }
        handlers = {name: _handler(name, self._answering(method)) for name, method in methods.items()}
        handlers["StreamIsActive"] = _handler("StreamIsActive", self.stream_is_active)
        return grpc.method_handlers_generic_handler(SERVICE, handlers)

    def _answering(self, method: Callable[[Request, Any], Awaitable[Any]]) -> Callable[[Requests, Any], Awaitable[Any]]:
        """A call of this method that has a place from its first byte to its answer."""

        async def answer(requests: Requests, context: Any) -> Any:  # noqa: ANN401  gRPC has no types
            try:
                self._calls.take()
            except TooMany as error:
                await _refuse(context, error)
            try:
                return await method(await self.messages.of(requests, context), context)
            finally:
                self._calls.give_back()

        return answer

    def _trigger(self, request: messages.ScaledObjectRef) -> Trigger:
        return self._default.changed_by(dict(request.scalerMetadata))

    async def _newest_look(self, request: messages.ScaledObjectRef, context: Any) -> Seen:  # noqa: ANN401
        """The newest look; a thread looks again if it is old. After an error KEDA keeps the number of workers."""
        try:
            trigger = self._trigger(request)
            if (seen := self._watches.fresh(trigger)) is not None:
                return seen
            return await _end_of(self._threads.submit(self._watches.see, trigger, context.time_remaining()))
        except tuple(_CODES) as error:
            await _refuse(context, error)

    def close(self) -> None:
        """Give the threads up; those that still ask the brokers end with their request."""
        self._threads.shutdown(wait=False, cancel_futures=True)


class _Places:
    """A number of places that calls take and give back, all on one loop."""

    def __init__(self, count: int, refusal: str) -> None:
        self._left = count
        self._refusal = refusal

    def take(self) -> None:
        """Raises TooMany if there is none left."""
        if not self._left:
            raise TooMany(self._refusal)
        self._left -= 1

    def give_back(self) -> None:
        """Give a place back: once after each `take` that did not raise."""
        self._left += 1


class _Messages:
    """The one message of each call. gRPC itself would wait for it without end."""

    def __init__(self) -> None:
        self._awaited: dict[asyncio.Timeout, None] = {}
        """Oldest first: a dictionary keeps the order of what is put in, and forgets from anywhere."""

    async def of(self, requests: Requests, context: Any) -> Request:  # noqa: ANN401  gRPC has no types
        """The message of a call, which is aborted if none comes."""
        try:
            async with asyncio.timeout(_MESSAGE_S) as deadline:
                self._awaited[deadline] = None
                if len(self._awaited) > _MAX_AWAITED:
                    oldest = next(iter(self._awaited))
                    del self._awaited[oldest]
                    oldest.reschedule(0.0)
                try:
                    return await anext(requests)
                finally:
                    self._awaited.pop(deadline, None)
        except TimeoutError:
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, f"the call sent no message within {_MESSAGE_S:g} s")
        except StopAsyncIteration:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the call has no message, or too large a one")


async def _end_of(work: Future[Seen]) -> Seen:
    """The result of a thread. Even if the call is cancelled, this waits for the thread, so that the call keeps its place."""
    waiting = asyncio.wrap_future(work)
    try:
        return await asyncio.shield(waiting)
    except asyncio.CancelledError:
        await asyncio.wait({waiting})
        raise


async def _waited_for(event: asyncio.Event, limit_s: float) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), limit_s)


async def _refuse(context: Any, error: Exception) -> NoReturn:  # noqa: ANN401  gRPC has no types
    """Map one of our errors to gRPC's."""
    code = next(code for kind, code in _CODES.items() if isinstance(error, kind))
    await context.abort(code, str(error))
    raise AssertionError("abort raises")


def _handler(name: str, method: Callable[..., Any]) -> Any:  # noqa: ANN401  gRPC has no types
    """A method of KEDA's service. Its one message is read as a stream, which on the wire is the same: see `_Messages`."""
    described = messages.DESCRIPTOR.services_by_name["ExternalScaler"].methods_by_name[name]
    make = grpc.stream_stream_rpc_method_handler if described.server_streaming else grpc.stream_unary_rpc_method_handler
    return make(
        method,
        request_deserializer=getattr(messages, described.input_type.name).FromString,
        response_serializer=getattr(messages, described.output_type.name).SerializeToString,
    )


def health_handler(stopping: asyncio.Event, awaited: _Messages) -> Any:  # noqa: ANN401  gRPC has no types
    """The health check of a gRPC server (`grpc.health.v1.Health/Check`), which Kubernetes probes call.

    Says whether the server takes calls; whether the brokers answer is reported by each call. The empty name means the whole
    server. `Watch` is not implemented, which the protocol allows. It needs no place and no thread.
    """

    async def check(requests: Requests, context: Any) -> Int32Value:  # noqa: ANN401  gRPC has no types
        request = await awaited.of(requests, context)
        if request.value not in {"", SERVICE}:
            await context.abort(grpc.StatusCode.NOT_FOUND, "there is no such service here")
        return Int32Value(value=_NOT_SERVING if stopping.is_set() else _SERVING)

    # Request and response have one field each, a string and an enum, and are encoded like these wrappers.
    method = grpc.stream_unary_rpc_method_handler(
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
    """Serve at `address` (`host:port`; port 0 takes a free one) in the body, and yield the port. Raises SettingsError.

    The server's loop has a thread of its own.
    """
    credentials = tls.credentials() if tls else None
    listening: Future[tuple[int, asyncio.AbstractEventLoop]] = Future()

    def run() -> None:
        try:
            asyncio.run(_serve(scaler, address, credentials, listening))
        except BaseException as error:
            if listening.done():
                raise
            listening.set_exception(error)

    thread = threading.Thread(target=run, name="scaler-loop")
    thread.start()
    try:
        port, loop = listening.result()
    except RuntimeError as error:  # gRPC does not say why
        why = "the port may be in use, or the address may not belong to this machine"
        why += ", or certificate and key may not be a pair in PEM" if tls else ""
        raise SettingsError(f"cannot listen on {address}: {why}") from error
    try:
        yield port
    finally:
        loop.call_soon_threadsafe(scaler.stopping.set)
        thread.join()
        scaler.close()


async def _serve(
    scaler: ExternalScaler,
    address: str,
    credentials: Any,  # noqa: ANN401  gRPC has no types
    listening: Future[tuple[int, asyncio.AbstractEventLoop]],
) -> None:
    """Serve until `scaler.stopping` is set. Raises RuntimeError before `listening` has a result, if it cannot."""
    server = grpc.aio.server(options=_OPTIONS, maximum_concurrent_rpcs=_MAX_RPCS)
    server.add_generic_rpc_handlers((scaler.handler(), health_handler(scaler.stopping, scaler.messages)))
    port = server.add_secure_port(address, credentials) if credentials else server.add_insecure_port(address)
    await server.start()
    listening.set_result((port, asyncio.get_running_loop()))
    await scaler.stopping.wait()
    await server.stop(_GRACE_S)
