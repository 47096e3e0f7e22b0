"""KEDA's calls, made by a real gRPC client and answered from a real broker."""

from __future__ import annotations

import os
import re
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
import trustme
from commands.cli_runner import run
from confluent_kafka import Consumer
from google.protobuf.wrappers_pb2 import Int32Value, StringValue
from scaling.topic_side import commit, write
from support.closing import leave_group
from support.forked import Forked
from support.patience import PATIENCE_S, wait_until
from support.topics import Topics, make_topics

from enricher.operate.scaling import watching
from enricher.operate.scaling.command import address_of
from enricher.operate.scaling.keda import externalscaler_pb2 as messages
from enricher.operate.scaling.policy import Rules
from enricher.operate.scaling.service import METRIC, SERVICE, ExternalScaler, Tls, serving
from enricher.operate.scaling.trigger import Trigger
from enricher.operate.scaling.watching import MAX_OTHERS, Watches
from enricher.worker.build.kafka_clients import kafka_config
from enricher.worker.settings import load_settings

CALL_S = 60.0
PROTOCOL = Path(messages.__file__).with_name("externalscaler.proto")
Connect = Callable[[int], Any]


@contextmanager
def scaler_for(topics: Topics, monkeypatch: pytest.MonkeyPatch, *, tls: Tls | None = None) -> Iterator[int]:
    """Run the scaler as the command does, but that it looks again after a moment; yields its port."""
    monkeypatch.setattr(watching, "_FRESH_S", 0.05)
    for name, text in {"ENRICHER_KAFKA__REQUEST_TIMEOUT_S": "30", **topics.environment}.items():
        monkeypatch.setenv(name, text)
    config = kafka_config(load_settings())
    with closing(Watches(config)) as watches:
        scaler = ExternalScaler(watches, Trigger(config.group_id, config.input_topic, Rules()), stream_every_s=0.05)
        with serving(scaler, "127.0.0.1:0", tls) as port:
            yield port


def scaled_object(**metadata: str) -> messages.ScaledObjectRef:
    """A ScaledObject as KEDA sends it."""
    return messages.ScaledObjectRef(
        name="enricher", namespace="news", scalerMetadata={"scalerAddress": "scaler:6000", **metadata}
    )


def value(client: Any, **metadata: str) -> float:  # noqa: ANN401  the stub has no types
    """The value of the metric."""
    request = messages.GetMetricsRequest(scaledObjectRef=scaled_object(**metadata), metricName=METRIC)
    (metric,) = client.GetMetrics(request, timeout=CALL_S).metricValues
    assert metric.metricName == METRIC
    assert metric.metricValue == metric.metricValueFloat
    return float(metric.metricValueFloat)


def is_active(client: Any, **metadata: str) -> bool:  # noqa: ANN401  the stub has no types
    """What KEDA gets for IsActive."""
    return bool(client.IsActive(scaled_object(**metadata), timeout=CALL_S).result)


def eventually(question: Callable[[], Any], wanted: object) -> None:
    """Repeat until it is true: an answer may be a moment old."""
    wait_until(lambda: bool(question() == wanted), PATIENCE_S, f"the answer {wanted!r}", 0.01)


def refused(client: Any, **metadata: str) -> tuple[grpc.StatusCode, str]:  # noqa: ANN401  the stub has no types
    """The status of a call that is refused."""
    with pytest.raises(grpc.RpcError) as caught:
        is_active(client, **metadata)
    call: Any = caught.value
    return call.code(), call.details()


@pytest.mark.broker
def test_one_record_that_waits_starts_one_worker(
    topics: Topics, monkeypatch: pytest.MonkeyPatch, client: Connect
) -> None:
    """Zero and inactive on an empty topic; one and active as soon as a record waits."""
    with scaler_for(topics, monkeypatch) as port:
        keda = client(port)
        assert not is_active(keda)
        assert value(keda) == 0
        write(topics, 0, 0.0)
        eventually(lambda: is_active(keda), wanted=True)
        assert value(keda) == 1


@pytest.mark.broker
def test_markers_alone_start_nobody(topics: Topics, monkeypatch: pytest.MonkeyPatch, client: Connect) -> None:
    """No worker can process these offsets: by lag, the number would never be zero."""
    write(topics, 0, 0.0)
    commit(topics, {0: 1})
    with scaler_for(topics, monkeypatch) as port:
        keda = client(port)
        assert not is_active(keda)
        assert value(keda) == 0


@pytest.mark.broker
def test_a_ScaledObject_may_name_its_own(topics: Topics, monkeypatch: pytest.MonkeyPatch, client: Connect) -> None:  # noqa: N802
    """It names another topic of the cluster, and a limit."""
    other = make_topics(topics.bootstrap_servers)
    for partition in range(4):
        write(topics, partition, 7200.0, 7100.0)
    with member_of(topics), scaler_for(topics, monkeypatch) as port:
        keda = client(port)
        assert value(keda) == 2  # one member, whose speed nobody knows, and an age far above the target: twice as many
        assert value(keda, maxReplicas="1") == 1
        assert value(keda, targetAgeSeconds="100000") == 1
        assert value(keda, topic=other.input) == 0


@contextmanager
def member_of(topics: Topics) -> Iterator[None]:
    """A member of the group that commits nothing."""
    member = Consumer({
        "bootstrap.servers": topics.bootstrap_servers, "group.id": topics.group, "enable.auto.commit": False,
    })  # fmt: skip
    member.subscribe([topics.input])
    wait_until(lambda: not member.poll(0.1) and len(member.assignment()) == 4, PATIENCE_S, "it has joined", 0.0)
    yield
    leave_group(member)


@pytest.mark.broker
def test_the_stream_tells_at_once_and_when_it_changes(
    topics: Topics, monkeypatch: pytest.MonkeyPatch, client: Connect
) -> None:
    """KEDA's external-push gets inactive first, active when a record arrives, and the end when the scaler ends."""
    with scaler_for(topics, monkeypatch) as port:
        stream = client(port).StreamIsActive(scaled_object(), timeout=CALL_S)
        assert not next(stream).result
        write(topics, 0, 0.0)
        assert next(stream).result
    with pytest.raises(StopIteration):
        next(stream)


@pytest.mark.broker
@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="counts threads as Linux shows them")
def test_invented_groups_and_streams_take_few_threads(
    topics: Topics, monkeypatch: pytest.MonkeyPatch, client: Connect
) -> None:
    """32 groups once took 371 threads for good: now watches and streams are limited, and the configured pair is answered."""
    before = len(list(Path("/proc/self/task").iterdir()))
    with scaler_for(topics, monkeypatch) as port:
        keda = client(port)
        answered = sum(_is_answered(keda, groupId=f"invented-{number}") for number in range(32))
        assert MAX_OTHERS == answered
        streams = [keda.StreamIsActive(scaled_object(), timeout=CALL_S) for _ in range(40)]
        assert 0 == value(client(port)), "asked beside them, on another connection"
        threads = len(list(Path("/proc/self/task").iterdir())) - before
        assert threads < 250, "163 where this was written: the server's, and 11 of each watch"
        for stream in streams:
            stream.cancel()


def _is_answered(keda: Any, **metadata: str) -> bool:  # noqa: ANN401  the stub has no types
    try:
        value(keda, **metadata)
    except grpc.RpcError as error:
        return bool(error.code() != grpc.StatusCode.RESOURCE_EXHAUSTED)
    return True


@pytest.mark.broker
def test_what_is_not_known_is_an_error(topics: Topics, monkeypatch: pytest.MonkeyPatch, client: Connect) -> None:
    """For a missing topic and bad metadata KEDA keeps the number of workers, and its events say why."""
    with scaler_for(topics, monkeypatch) as port:
        keda = client(port)
        code, text = refused(keda, topic="there-is-none")
        assert (code, "there is no topic 'there-is-none'" in text) == (grpc.StatusCode.UNAVAILABLE, True)
        code, text = refused(keda, targetAgeSeconds="soon")
        assert (code, "targetAgeSeconds" in text) == (grpc.StatusCode.INVALID_ARGUMENT, True)
        assert not is_active(keda), "the others are answered as before"


NOWHERE = Topics(
    "127.0.0.1:1",
    "articles",
    "entities",
    "dead",
    "enricher",
    {"ENRICHER_KAFKA__BOOTSTRAP_SERVERS": "127.0.0.1:1", "ENRICHER_KAFKA__REQUEST_TIMEOUT_S": "1"},
)
"""Brokers that are away, and little patience with them."""


@pytest.mark.slow
def test_brokers_that_are_away_are_an_error_and_never_a_zero(monkeypatch: pytest.MonkeyPatch, client: Connect) -> None:
    """They fail within the caller's deadline; the metric's name and target need no broker."""
    with scaler_for(NOWHERE, monkeypatch) as port:
        keda = client(port)
        with pytest.raises(grpc.RpcError) as caught:
            keda.GetMetrics(messages.GetMetricsRequest(scaledObjectRef=scaled_object()), timeout=CALL_S)
        error: Any = caught.value
        assert error.code() == grpc.StatusCode.UNAVAILABLE
        assert "127.0.0.1:1" in error.details()
        (spec,) = keda.GetMetricSpec(scaled_object(), timeout=CALL_S).metricSpecs
        assert (spec.metricName, spec.targetSize, spec.targetSizeFloat) == (METRIC, 1, 1.0)


def test_all_of_the_contract_is_answered_but_its_optional_part(
    monkeypatch: pytest.MonkeyPatch, client: Connect
) -> None:
    """KEDA takes UNIMPLEMENTED to mean that the target does not change."""
    names = {method.name for method in messages.DESCRIPTOR.services_by_name["ExternalScaler"].methods}
    with scaler_for(NOWHERE, monkeypatch) as port:
        with pytest.raises(grpc.RpcError) as caught:
            next(client(port).StreamMetricSpec(scaled_object(), timeout=CALL_S))
        error: Any = caught.value
        assert error.code() == grpc.StatusCode.UNIMPLEMENTED
    assert names == {"IsActive", "StreamIsActive", "GetMetricSpec", "GetMetrics", "StreamMetricSpec"}


def health(port: int, service: str = "", credentials: Any = None) -> int:  # noqa: ANN401  gRPC has no types
    """The status that a Kubernetes probe gets; 1 means serving."""
    address = f"127.0.0.1:{port}"
    made = grpc.secure_channel(f"localhost:{port}", credentials) if credentials else grpc.insecure_channel(address)
    with made as channel:
        check = channel.unary_unary(
            "/grpc.health.v1.Health/Check",
            request_serializer=StringValue.SerializeToString,
            response_deserializer=Int32Value.FromString,
        )
        return int(check(StringValue(value=service), timeout=CALL_S).value)


def test_health_is_told_as_gRPC_tells_it(monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: N802
    """It is serving even without brokers: a restart would not bring them back."""
    assert StringValue(value="a").SerializeToString() == b"\x0a\x01a", "on the wire as in grpc.health.v1"
    assert Int32Value(value=1).SerializeToString() == b"\x08\x01"
    with scaler_for(NOWHERE, monkeypatch) as port:
        assert (health(port), health(port, SERVICE)) == (1, 1)
        with pytest.raises(grpc.RpcError) as caught:
            health(port, "nobody")
        error: Any = caught.value
        assert error.code() == grpc.StatusCode.NOT_FOUND


def test_with_tls_only_those_with_a_certificate_are_let_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With KEDA's tlsClientCert, tlsClientKey and caCert."""
    ca = trustme.CA()
    server, ours = ca.issue_cert("localhost"), ca.issue_cert("keda")
    ca.cert_pem.write_to_path(tmp_path / "ca.pem")
    server.private_key_pem.write_to_path(tmp_path / "key.pem")
    (tmp_path / "cert.pem").write_bytes(b"".join(blob.bytes() for blob in server.cert_chain_pems))
    tls = Tls(tmp_path / "cert.pem", tmp_path / "key.pem", tmp_path / "ca.pem")
    chain = b"".join(blob.bytes() for blob in ours.cert_chain_pems)
    good = grpc.ssl_channel_credentials(ca.cert_pem.bytes(), ours.private_key_pem.bytes(), chain)
    with scaler_for(NOWHERE, monkeypatch, tls=tls) as port:
        assert health(port, credentials=good) == 1
        with pytest.raises(grpc.RpcError):
            health(port, credentials=grpc.ssl_channel_credentials(ca.cert_pem.bytes()))


@pytest.mark.broker
def test_the_command_runs_until_it_is_told_to_end(topics: Topics, client: Connect, tmp_path: Path) -> None:
    """It logs its address and its answers; SIGTERM ends it with code 0, even while a stream is open."""
    log = tmp_path / "log"
    with Forked(["-m", "enricher", "scaler", "--port", "0"], {**os.environ, **topics.environment}, log) as process:
        eventually(lambda: "answering KEDA on" in log.read_text(), wanted=True)
        (port,) = re.findall(r"answering KEDA on \S+:(\d+)", log.read_text())
        keda = client(int(port))
        assert value(keda) == 0
        stream = keda.StreamIsActive(scaled_object(), timeout=CALL_S)
        assert not next(stream).result
        process.terminate()
        assert process.wait(PATIENCE_S) == 0
    assert "0 workers wanted" in log.read_text()
    assert "ended" in log.read_text()


def test_a_port_that_is_taken_is_told() -> None:
    """Two scalers on one port would answer in turn."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        result = run("scaler", "--port", str(taken.getsockname()[1]))
    assert getattr(result.exception, "exit_code", None) == 2
    assert "cannot listen on 127.0.0.1" in str(result.exception)


@pytest.mark.parametrize(
    ("host", "address"),
    [("::1", "[::1]:6000"), ("::", "[::]:6000"), ("[::1]", "[::1]:6000"), ("127.0.0.1", "127.0.0.1:6000")],
)
def test_an_address_of_ipv6_has_brackets(host: str, address: str) -> None:
    """Without brackets the address is ambiguous: gRPC refuses `:::6000`, and `::1:6000` is another address."""
    assert address == address_of(host, 6000)


def test_without_gRPC_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: N802
    """A worker's installation has no gRPC."""
    for name in [name for name in sys.modules if name.startswith("enricher.operate.scaling.service")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "grpc", None)
    result = run("scaler", "--port", "0")
    assert getattr(result.exception, "exit_code", None) == 2
    assert "pip install 'kafka-enricher[scaler]'" in str(result.exception)


def test_files_that_are_no_certificate_are_told(tmp_path: Path) -> None:
    """For these, too, gRPC says only that it did not get the port."""
    file = tmp_path / "cert.pem"
    file.write_text("no certificate", "utf-8")
    result = run("scaler", "--port", "0", "--tls-certificate", str(file), "--tls-key", str(file))
    assert getattr(result.exception, "exit_code", None) == 2
    assert "certificate and key" in str(result.exception)


def test_half_of_a_certificate_is_refused(tmp_path: Path) -> None:
    """TLS that was requested is never left out."""
    result = run("scaler", "--port", "0", "--tls-certificate", str(tmp_path / "cert.pem"))
    assert getattr(result.exception, "exit_code", None) == 2
    assert "--tls-key" in str(result.exception)


@pytest.mark.parametrize("options", [{"suffix": ".py", "plugin": "python"}, {"suffix": ".pyi", "plugin": "pyi"}])
def test_the_messages_are_those_of_the_contract(options: Mapping[str, str], tmp_path: Path) -> None:
    """They are generated again and compared."""
    protoc = pytest.importorskip("grpc_tools.protoc")
    arguments = ["", f"--proto_path={PROTOCOL.parent}", f"--{options['plugin']}_out={tmp_path}", PROTOCOL.name]
    assert protoc.main(arguments) == 0
    name = f"externalscaler_pb2{options['suffix']}"
    assert (tmp_path / name).read_text("utf-8") == PROTOCOL.with_name(name).read_text("utf-8")
