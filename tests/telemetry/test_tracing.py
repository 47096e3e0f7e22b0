"""An article's span is a child of the publisher's, linked with batches and transaction; the output carries its context."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, DEFAULT_ON, Sampler
from opentelemetry.trace import SpanContext
from telemetry.building import WORKER

from enricher.errors import TransactionTrouble
from enricher.worker.loop.ports import Tracing
from enricher.worker.records import Batch, DeadLetter, Headers, Partition, RawRecord, Ticket, Tombstone, Window
from enricher.worker.telemetry.tracing import SPANS, ContextPropagation, Spans

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"
SAMPLED = (("traceparent", f"00-{TRACE}-{PARENT}-01".encode()), ("tracestate", b"shop=1"))
UNSAMPLED: Headers = (("traceparent", f"00-{TRACE}-{PARENT}-00".encode()),)

Traced = tuple[Spans, Callable[[], dict[str, list[ReadableSpan]]]]


def tracing(sampler: Sampler = DEFAULT_ON) -> Traced:
    """A tracing, and the finished spans by the first word of their names."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(sampler=sampler)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    spans = Spans(provider.get_tracer("test"), WORKER, honours_parents=True)

    def finished() -> dict[str, list[ReadableSpan]]:
        found: dict[str, list[ReadableSpan]] = {}
        for span in exporter.get_finished_spans():
            found.setdefault(span.name.split()[0], []).append(span)
        return found

    return spans, finished


def ticket(headers: Headers = (), offset: int = 0) -> Ticket:
    """An article that was just read."""
    return Ticket(RawRecord(Partition("articles", 0), offset, b"k", b"v", headers), 0.0)


def batch_of(*tickets: Ticket) -> Batch:
    """A batch with two windows of each."""
    return Batch(tuple(Window(each, np.zeros(4, np.int32), 0, 0, 4, 0, 0.0) for each in tickets for _ in range(2)))


def context_of(span: ReadableSpan) -> SpanContext:
    """The ids of a span."""
    context = span.get_span_context()
    assert context is not None
    return context


def through(spans: Tracing, *tickets: Ticket) -> None:
    """Take articles through two batches each and one transaction."""
    spans.begin_articles(tickets)
    batches = [batch_of(*tickets), batch_of(*tickets)]
    for batch in batches:
        spans.begin_batch(batch)
    for batch in reversed(batches):
        spans.end_batch(batch)
    for each in tickets:
        each.finish(Tombstone())
    with spans.transaction(tickets):
        pass


def test_an_article_is_its_publishers_child() -> None:
    """The span is in the publisher's trace, and the output carries its context with the publisher's state."""
    spans, finished = tracing()
    traced = ticket(SAMPLED)
    through(spans, traced)
    (span,) = finished()["process"]
    assert (int(TRACE, 16), int(PARENT, 16)) == (context_of(span).trace_id, span.parent and span.parent.span_id)
    sent = dict(traced.trace)
    assert f"00-{TRACE}-{context_of(span).span_id:016x}-01".encode() == sent["traceparent"]
    assert b"shop=1" == sent["tracestate"]


def test_an_article_is_linked_with_its_batches_and_its_transaction() -> None:
    """Each batch is linked once, although it had two windows of the article."""
    spans, finished = tracing()
    through(spans, ticket(SAMPLED), ticket(offset=1))
    found = finished()
    others = {context_of(span).span_id for span in [*found["infer"], *found["commit"]]}
    assert 3 == len(others)
    for span in found["process"]:
        assert others == {link.context.span_id for link in span.links}
        assert 3 == len(span.links)


def test_spans_are_named_and_attributed_as_the_list_says() -> None:
    """Spans have no other attribute: no id, key, offset or text."""
    spans, finished = tracing()
    through(spans, ticket(SAMPLED))
    listed = {span.name: span for span in SPANS}
    assert set(listed) == set(finished())
    for name, found in finished().items():
        for span in found:
            assert set(span.attributes or {}) <= set(listed[name].attributes)
            assert listed[name].kind == span.kind.name.lower()


@pytest.mark.parametrize(
    ("headers", "sampler"),
    [(UNSAMPLED, DEFAULT_ON), (SAMPLED[:1], ALWAYS_OFF)],
    ids=["publisher does not sample", "we do not"],
)
def test_what_is_not_sampled_is_passed_on_as_it_came(headers: Headers, sampler: Sampler) -> None:
    """No span is created."""
    spans, finished = tracing(sampler)
    untraced = ticket(headers)
    through(spans, untraced)
    assert headers == untraced.trace
    assert untraced.span is None
    assert {} == finished()


PARENT_HEADER = SAMPLED[0]
STATE = b"a=1," * 127 + b"b=23"


CONTEXTS: dict[str, tuple[Headers, Headers]] = {
    "100 kB": ((("traceparent", b"x" * 100_000), SAMPLED[1]), ()),
    "too long": ((("traceparent", PARENT_HEADER[1] + b"-more"), SAMPLED[1]), ()),
    "version ff": ((("traceparent", b"ff" + PARENT_HEADER[1][2:]),), ()),
    "no trace id": ((("traceparent", f"00-{'0' * 32}-{PARENT}-01".encode()),), ()),
    "null": ((("traceparent", None), ("tracestate", None)), ()),
    "a state without a parent": ((SAMPLED[1],), ()),
    "512 bytes of state": ((PARENT_HEADER, ("tracestate", STATE)), (PARENT_HEADER, ("tracestate", STATE))),
    "513 bytes of state": ((PARENT_HEADER, ("tracestate", STATE + b"4")), (PARENT_HEADER,)),
    "a state that is no text": ((PARENT_HEADER, ("tracestate", b"a=\xff")), (PARENT_HEADER,)),
    "many of each": ((*UNSAMPLED, *[PARENT_HEADER] * 1_000, *[SAMPLED[1]] * 1_000), SAMPLED),
}
"""What comes, and what of it is kept."""


@pytest.mark.parametrize(("headers", "kept"), CONTEXTS.values(), ids=CONTEXTS)
def test_what_a_publisher_sends_as_its_context_is_bounded(headers: Headers, kept: Headers) -> None:
    """By the lengths of W3C Trace Context: whatever else comes is not copied to outputs."""
    passed = ticket(headers)
    ContextPropagation().begin_articles([passed])
    assert kept == passed.trace


def test_a_dead_letter_is_an_error_by_its_kind() -> None:
    """The error's message is not used. A record that is too large for its topic is the dead letter that the topic has."""
    spans, finished = tracing()
    dead, large = ticket(SAMPLED), ticket(SAMPLED, 1)
    spans.begin_articles([dead, large])
    dead.finish(DeadLetter("decode", "InvalidArticle", "no body"))
    large.finish(Tombstone())
    with spans.transaction([dead, large]) as substitutes:
        substitutes[large] = DeadLetter("publish", "OutputTooLarge", "6041 bytes")
    found = finished()["process"]
    assert {"InvalidArticle", "OutputTooLarge"} == {(span.attributes or {})["error.type"] for span in found}
    assert [(False, None)] * 2 == [(span.status.is_ok, span.status.description) for span in found]


def test_an_article_of_a_failed_transaction_is_told_when_it_is_published() -> None:
    """The span of a failed transaction has the class of the error, but not its message."""
    spans, finished = tracing()
    forgotten = ticket(SAMPLED)
    spans.begin_articles([forgotten])
    forgotten.finish(Tombstone())
    with pytest.raises(TransactionTrouble), spans.transaction([forgotten]):
        raise TransactionTrouble("broker words")
    assert {"commit"} == set(finished())
    (span,) = finished()["commit"]
    assert "TransactionTrouble" == (span.attributes or {})["error.type"]
    assert not span.events
    assert span.status.description is None


def test_without_tracing_the_context_goes_on_untouched() -> None:
    """Only the context is copied, no other headers."""
    passed = ticket((*SAMPLED, ("shop-order", b"7")))
    through(ContextPropagation(), passed)
    assert SAMPLED == passed.trace
