"""Headers of an input, on a real broker: none speaks for the worker, and none is copied beyond its length."""

from __future__ import annotations

import pytest
from kafka.clients import config_for
from kafka.harness import Sent, as_sent, header_list, publish
from kafka.test_bad_input import run_worker
from support.reading import read_all
from support.topics import Topics

from enricher.operate.verify import verify
from tools.chaos.stub import StubEngine, stub_model

pytestmark = pytest.mark.broker

FORGED = [("enricher.dlq.value.omitted_bytes", b"1"), ("enricher.record.id", b"mine"), ("kept", None)]
TRACE = [("traceparent", b"00-" + b"a" * 100_000), ("tracestate", b"s" * 100_000)]


def test_what_a_publisher_forges_is_kept_and_believed_by_nobody(
    topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dead letters have it under another name, records not at all, and `enricher verify` compares both as always."""
    good = as_sent({"id": "good", "body": "Ada in London"})
    inputs = [Sent(b"bad", b"{", FORGED), Sent(good.key, good.value, [*FORGED, *TRACE]), Sent(b"gone", None, FORGED)]
    publish(topics.bootstrap_servers, topics.input, inputs)
    run_worker(topics, monkeypatch, stub_model(StubEngine()))
    (letter,) = read_all(topics.bootstrap_servers, topics.dead_letters)
    escaped = [("input.enricher.dlq.value.omitted_bytes", b"1"), ("input.enricher.record.id", b"mine"), ("kept", None)]
    assert escaped == header_list(letter)[: len(FORGED)]
    assert b"{" == letter.value()
    for record in read_all(topics.bootstrap_servers, topics.output):
        assert not {*FORGED, *TRACE} & {*header_list(record)}
        assert 1_000 > sum(len(name) + len(value or b"") for name, value in header_list(record))
    report = verify(config_for(topics))
    assert [] == report.failed
    assert 1 == next(check.checked for check in report.checks if check.name == "dead letters")
