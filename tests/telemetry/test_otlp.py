"""Traces arrive at a real OTLP receiver, switched on and off by the standard variables."""

from __future__ import annotations

import socket
import sys

import pytest
from telemetry.building import WORKER
from telemetry.receiver import http_receiver

from enricher.errors import SettingsError
from enricher.worker.records import Partition, RawRecord, Ticket, Tombstone
from enricher.worker.telemetry.otlp import export_spans, is_wanted


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_RESOURCE_ATTRIBUTES", "OTEL_SERVICE_NAME", "OTEL_TRACES_SAMPLER"):
        monkeypatch.delenv(name, raising=False)


def one_article() -> Ticket:
    """A record as the source reads it."""
    return Ticket(RawRecord(Partition("articles", 0), 5, b"k", b"v"), 0.0)


def export_all() -> None:
    """The trace of one article."""
    with export_spans(WORKER) as spans:
        assert spans is not None
        ticket = one_article()
        spans.begin_articles([ticket])
        ticket.finish(Tombstone())
        with spans.transaction([ticket]):
            pass


def test_spans_arrive(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are flushed before the process ends, although they are sent in batches."""
    with http_receiver() as received:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", received.endpoint)
        monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
        export_all()
    expected = {"service.name": "enricher", "service.version": "1.2.3", "service.instance.id": "worker-0"}
    assert (expected | {"deployment.environment.name": "test"}).items() <= received.resource().items()
    assert {"process articles", "commit entities"} == {span.name for span in received.spans()}


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://x"}, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_TRACES_EXPORTER": "none"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_TRACES_EXPORTER": " "}, True),
        ({"OTEL_TRACES_EXPORTER": "OTLP,console"}, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_TRACES_EXPORTER": "console,zipkin"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_SDK_DISABLED": "true"}, False),
    ],
)
def test_the_standard_variables_decide(environment: dict[str, str], expected: bool) -> None:  # noqa: FBT001  a column
    """Nothing is sent without an endpoint or the exporter `otlp`."""
    assert expected == is_wanted(environment)


def test_a_receiver_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last export at the end of the worker takes its timeout, and no longer; one that cannot be reached takes none."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        for port in (silent.getsockname()[1], 9):
            monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{port}")
            monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
            export_all()


GRPC = "opentelemetry.exporter.otlp.proto.grpc.trace_exporter"


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "carrier-pigeon"}, "carrier-pigeon"),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_BSP_MAX_QUEUE_SIZE": "-1"}, r"OTEL_\.\.\. variables: \S+"),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, r"extra `grpc`"),
    ],
)
def test_what_the_sdk_refuses_is_a_mistake_in_the_settings(
    environment: dict[str, str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is reported before anything is read, without a traceback; without the extra there is no silent fallback."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:1")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    if "extra" in said:
        monkeypatch.setitem(sys.modules, GRPC, None)
    with pytest.raises(SettingsError, match=said):
        export_all()


def test_a_header_that_cannot_be_read_is_told_without_its_secret(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A colon instead of `=` is the most likely mistake, and the token must not get into the log."""
    with http_receiver() as received:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", received.endpoint)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization: Bearer hunter2")
        export_all()
    assert "Header format invalid!" in caplog.text
    assert "hunter2" not in caplog.text
