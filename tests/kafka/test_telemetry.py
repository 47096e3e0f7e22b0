"""What a real worker emits besides records: traces up to the indexer, correct counts, no text of an article."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from pathlib import Path

import orjson
import pytest
from confluent_kafka import Message
from health.looking import get
from kafka.harness import Sent, as_sent, assert_exactly_once, header_list, headers_of, publish, short_articles, worker
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from support.patience import PATIENCE_S, wait_until
from support.reading import committed_and_ends, read_all
from support.topics import Topics
from telemetry.receiver import Received, http_receiver

from tools.ports import free_ports

pytestmark = pytest.mark.broker

CANARY = "Zyxomma"
"""A word that no program says by itself."""


def environment_of(topics: Topics, received: Received, ports: Sequence[int]) -> dict[str, str]:
    """Everything that can be logged is logged. `ports`: of the page, and of the probes."""
    return topics.environment | {
        "OTEL_EXPORTER_OTLP_ENDPOINT": received.endpoint,
        "OTEL_METRIC_EXPORT_INTERVAL": "500",
        "ENRICHER_HEALTH__PORT": str(ports[0]),
        "ENRICHER_HEALTH__PROBE_PORT": str(ports[1]),
        "ENRICHER_LOG__FORMAT": "json",
    }


def published_under_a_span() -> tuple[Sent, int, int]:
    """An article whose publisher traces, with the ids of that trace and span."""
    span = TracerProvider().get_tracer("publisher").start_span("publish article")
    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier, set_span_in_context(span))
    article = short_articles(1)[0]
    context = span.get_span_context()
    headers = [(name, value.encode()) for name, value in carrier.items()]
    return Sent(b"k", orjson.dumps(article), headers), context.trace_id, context.span_id


def test_a_trace_goes_from_publisher_to_indexer(topics: Topics) -> None:
    """One trace id all the way; the worker's span is the publisher's child, and what an indexer continues."""
    sent, trace_id, span_id = published_under_a_span()
    with http_receiver() as received:
        publish(topics.bootstrap_servers, topics.input, [sent])
        with worker(environment_of(topics, received, free_ports(2)), "--until-caught-up", stub=True) as process:
            assert 0 == process.wait(PATIENCE_S)
    (message,) = read_all(topics.bootstrap_servers, topics.output)
    (span,) = [span for span in received.spans() if span.name.startswith("process")]
    assert (trace_id.to_bytes(16), span_id.to_bytes(8)) == (span.trace_id, span.parent_span_id)
    context, _, flags = (headers_of(message)["traceparent"] or b"").decode().rpartition("-")
    assert (f"00-{trace_id:032x}-{span.span_id.hex()}", 1) == (context, int(flags, 16) & 1)
    others = {other.span_id: other.name.split()[0] for other in received.spans() if other is not span}
    assert ["infer", "commit"] == [others[link.span_id] for link in span.links]


def some_bad_inputs() -> list[Sent]:
    """Of each kind, with the canary where its text would be."""
    word = CANARY.encode()
    return [
        Sent(b"not-json", word + b" is no JSON"),
        Sent(b"cut", b'{"id": "1", "title": "' + word),
        Sent(b"not-utf-8", b'{"id": "1", "title": "' + word + b'\xff", "body": ""}'),
        Sent(b"no-body", orjson.dumps({"id": "1", "title": CANARY})),
        Sent(b"wrong-type", orjson.dumps({"id": "1", "title": [CANARY], "body": {CANARY: CANARY}})),
        Sent(b"list", orjson.dumps([CANARY])),
        Sent(b"surrogate", b'{"id": "1", "title": "\\ud800 ' + word + b'", "body": "x"}'),
        Sent(b"too-long", orjson.dumps({"id": "1", "title": CANARY, "body": f"{CANARY} " * 200_000})),
    ]


def reasons_of(messages: list[Message]) -> bytes:
    """What a dead letter adds to its input."""
    return b"\n".join(
        name.encode() + (value or b"")
        for m in messages
        for name, value in header_list(m)
        if name.startswith("enricher")
    )


def test_no_text_of_an_article_leaves_but_in_its_record(topics: Topics, tmp_path: Path) -> None:
    """Not in the log at any level, nor in metrics, traces, pages or the reasons of dead letters."""
    good = [article | {"title": f"{CANARY} visits {CANARY} City", "body": CANARY} for article in short_articles(40)]
    bad = some_bad_inputs()
    log, ports = tmp_path / "log", free_ports(2)
    with http_receiver() as received:
        places = publish(topics.bootstrap_servers, topics.input, [*map(as_sent, good), *bad])
        with worker(environment_of(topics, received, ports), log=log) as process:

            def done() -> bool:
                committed = committed_and_ends(topics.bootstrap_servers, topics.group, topics.input)
                return all(offset == end for offset, end in committed.values() if end)

            wait_until(done, PATIENCE_S, "everything is published")
            pages = b"".join(get(ports[0], path).body for path in ("/", "/status.json", "/metrics"))
            pages += b"".join(get(ports[1], path).body for path in ("/livez", "/readyz"))
            process.send_signal(signal.SIGTERM)
            assert 0 == process.wait(PATIENCE_S)
    records = read_all(topics.bootstrap_servers, topics.output)
    letters = read_all(topics.bootstrap_servers, topics.dead_letters)
    assert_exactly_once([*records, *letters], places)
    assert (len(good), len(bad)) == (len(records), len(letters))
    word = CANARY.encode()
    assert all(word in (record.value() or b"") for record in records), "the word is where it belongs"
    told = {"log": log.read_bytes(), "pages": pages, "otlp": b"".join(received.raw), "reasons": reasons_of(letters)}
    assert all(told.values()), "each of them said something"
    assert [] == [where for where, text in told.items() if word in text or word.lower() in text]
    assert all(orjson.loads(line)["message"] for line in log.read_bytes().splitlines()), "every line is an object"
