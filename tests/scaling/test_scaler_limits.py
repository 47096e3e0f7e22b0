"""What anyone who reaches the scaler's port may take: connections, calls, streams, bytes and time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import grpc
import pytest
from google.protobuf.wrappers_pb2 import Int32Value, StringValue
from scaling.building import backlog
from support.patience import retry, wait_until

from enricher.operate.scaling import service
from enricher.operate.scaling.backlog import Backlog
from enricher.operate.scaling.keda import externalscaler_pb2 as messages
from enricher.operate.scaling.policy import Rules
from enricher.operate.scaling.reading import BacklogReader
from enricher.operate.scaling.service import SERVICE, ExternalScaler, serving
from enricher.operate.scaling.trigger import Trigger
from enricher.operate.scaling.watching import Watches
from enricher.worker.build.kafka_clients import kafka_config
from enricher.worker.settings import load_settings

CALL_S = 60.0
METRICS, STREAM, HEALTH = f"/{SERVICE}/GetMetrics", f"/{SERVICE}/StreamIsActive", "/grpc.health.v1.Health/Check"


class Brokers(BacklogReader):
    """A backlog without work. It can be made to wait."""

    def __init__(self) -> None:  # of the real one nothing, which would connect
        self.answering = threading.Event()
        self.answering.set()

    def look(self, timeout_s: float | None = None) -> Backlog:
        """The backlog."""
        self.answering.wait(timeout_s)
        return backlog(done=1, written=1)

    def close(self) -> None:
        """Nothing to close."""


@contextmanager
def scaler(brokers: Brokers | None = None) -> Iterator[int]:
    """A scaler on these brokers; yields its port."""
    with closing(Watches(kafka_config(load_settings()), make_reader=lambda _config: brokers or Brokers())) as watches:
        answers = ExternalScaler(watches, Trigger("enricher", "articles", Rules()), stream_every_s=0.05)
        with serving(answers, "127.0.0.1:0") as port:
            yield port


@pytest.fixture
def connect() -> Iterator[Callable[[int], Any]]:
    """Makes channels that share no connection."""
    channels = []

    def made(port: int) -> Any:  # noqa: ANN401  gRPC has no types
        options = [("grpc.use_local_subchannel_pool", 1)]
        channels.append(grpc.insecure_channel(f"127.0.0.1:{port}", options=options))
        return channels[-1]

    yield made
    for channel in channels:
        channel.close()


def health(channel: Any) -> int:  # noqa: ANN401  as above
    """The status that a Kubernetes probe gets; 1 means serving."""
    check = channel.unary_unary(
        HEALTH, request_serializer=StringValue.SerializeToString, response_deserializer=Int32Value.FromString
    )
    return int(check(StringValue(), timeout=CALL_S).value)


def metrics(channel: Any, value: bytes = b"", **options: Any) -> Any:  # noqa: ANN401  as above
    """KEDA's call, as a future. `value` is the message as bytes."""
    return channel.unary_unary(METRICS).future(value, timeout=CALL_S, **options)


def until_answered(call: Callable[[], object]) -> None:
    """Make a call until it is not refused: the server hears a moment later that another one ended."""
    retry(call, grpc.RpcError)


class Unsent:
    """The messages of a call that sends none until it is told to end."""

    def __init__(self) -> None:
        self.ended = threading.Event()

    def __iter__(self) -> Unsent:
        return self

    def __next__(self) -> bytes:
        self.ended.wait()
        raise StopIteration


def half_open(channel: Any, path: str, unsent: Unsent) -> Any:  # noqa: ANN401  as above
    """A call that has begun and whose message does not come."""
    return channel.stream_unary(path).future(unsent)


@pytest.fixture
def unsent() -> Iterator[Unsent]:
    """Ends when the test does."""
    found = Unsent()
    yield found
    found.ended.set()


@pytest.mark.parametrize("path", [METRICS, HEALTH])
def test_calls_without_a_message_hold_nobody_up(path: str, unsent: Unsent, connect: Callable[[int], Any]) -> None:
    """Sixty of them, more than there are threads; each used to hold one for ever."""
    with scaler() as port:
        channels = [connect(port) for _ in range(4)]
        calls = [half_open(channel, path, unsent) for channel in channels for _ in range(15)]
        assert [1] * 4 == [health(channel) for channel in channels], "asked behind them on the same connections"
        for call in calls:
            call.cancel()


@pytest.mark.slow
def test_a_call_whose_message_does_not_come_is_ended(
    unsent: Unsent, connect: Callable[[int], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its place is free again: more calls than there are places are ended one after the other, and KEDA is answered."""
    monkeypatch.setattr(service, "_MESSAGE_S", 0.2)
    monkeypatch.setattr(service, "_MAX_CALLS", 3)
    with scaler() as port:
        channel = connect(port)
        for _ in range(5):
            assert grpc.StatusCode.DEADLINE_EXCEEDED == half_open(channel, METRICS, unsent).code()
        assert grpc.StatusCode.OK == metrics(channel).code()


def test_of_too_many_calls_without_a_message_the_oldest_are_given_up(
    unsent: Unsent, connect: Callable[[int], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """So they hold neither memory nor places that others need, and a call that sends its message is answered."""
    monkeypatch.setattr(service, "_MAX_AWAITED", 3)
    monkeypatch.setattr(service, "_MESSAGE_S", 3600.0)
    with scaler() as port:
        channel = connect(port)
        oldest = half_open(channel, METRICS, unsent)
        assert health(channel) == 1, "asked behind it on the same connection, so the scaler has it by now"
        others = [half_open(channel, METRICS, unsent) for _ in range(7)]
        assert grpc.StatusCode.DEADLINE_EXCEEDED == oldest.code()
        wait_until(lambda: sum(call.done() for call in others) == 4, CALL_S, "calls beyond the places end")
        assert {grpc.StatusCode.DEADLINE_EXCEEDED} == {call.code() for call in others if call.done()}
        calls = [oldest, *others]
        assert grpc.StatusCode.OK == metrics(channel).code()
        for call in calls:
            call.cancel()


def test_calls_beyond_the_places_are_refused_and_the_health_check_is_not(
    connect: Callable[[int], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brokers that do not answer hold the places; a call that its caller gave up keeps its own until its thread ends."""
    brokers = Brokers()
    monkeypatch.setattr(service, "_MAX_CALLS", 64)
    with scaler(brokers) as port:
        brokers.answering.clear()
        channels = [connect(port) for _ in range(5)]
        waiting = [metrics(channel) for channel in channels[:4] for _ in range(16)]
        assert [1] * 4 == [health(channel) for channel in channels[:4]], "asked behind them on the same connections"
        refused = metrics(channels[4])
        assert grpc.StatusCode.RESOURCE_EXHAUSTED == refused.code()
        for call in waiting:
            call.cancel()
        assert grpc.StatusCode.RESOURCE_EXHAUSTED == metrics(channels[4]).code()
        assert 1 == health(connect(port))
        brokers.answering.set()


@pytest.mark.parametrize(("size_bytes", "code"), [(12_000, "OK"), (40_000, "RESOURCE_EXHAUSTED")])
def test_a_message_is_as_large_as_three_certificates_at_most(
    size_bytes: int, code: str, connect: Callable[[int], Any]
) -> None:
    """KEDA passes on all metadata of a trigger, its own certificates included; gRPC's own limit is 4 MB."""
    reference = messages.ScaledObjectRef(name="enricher", scalerMetadata={"caCert": "x" * size_bytes})
    value = messages.GetMetricsRequest(scaledObjectRef=reference).SerializeToString()
    with scaler() as port:
        assert code == metrics(connect(port), value).code().name


def test_every_ScaledObject_has_a_stream_beside_its_calls_on_one_connection(connect: Callable[[int], Any]) -> None:  # noqa: N802
    """KEDA shares one connection: 16 streams are told, one more is refused, and calls beside them are answered."""
    with scaler() as port:
        channel = connect(port)
        streams = [channel.unary_stream(STREAM)(b"", timeout=CALL_S) for _ in range(16)]
        assert [b""] * 16 == [next(stream) for stream in streams], "inactive, which is an empty message"
        with pytest.raises(grpc.RpcError) as caught:
            next(channel.unary_stream(STREAM)(b"", timeout=CALL_S))
        error: Any = caught.value
        assert grpc.StatusCode.RESOURCE_EXHAUSTED == error.code()
        assert [grpc.StatusCode.OK] * 16 == [call.code() for call in [metrics(channel) for _ in range(16)]]
        assert 1 == health(channel)
        for stream in streams:
            stream.cancel()
        until_answered(lambda: next(channel.unary_stream(STREAM)(b"", timeout=CALL_S)))


@pytest.mark.slow
def test_connections_are_counted(connect: Callable[[int], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """One beyond the limit is not taken, and is when another one ends."""
    name = "grpc.max_allowed_incoming_connections"
    assert service._MAX_CONNECTIONS == dict(service._OPTIONS)[name]
    monkeypatch.setattr(service, "_OPTIONS", tuple((dict(service._OPTIONS) | {name: 40}).items()))
    with scaler() as port:
        channels = [connect(port) for _ in range(40)]
        assert [1] * len(channels) == [health(channel) for channel in channels]
        late = connect(port)
        assert grpc.StatusCode.UNAVAILABLE == metrics(late).code()
        channels[0].close()
        assert grpc.StatusCode.OK == metrics(late, wait_for_ready=True).code()
