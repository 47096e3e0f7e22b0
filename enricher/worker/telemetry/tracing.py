"""Traces: one span per article, a child of the publisher's span, with links to the spans of its batches and transaction.

The trace context is read from the record's headers and written to the output's (W3C Trace Context). Only OpenTelemetry's API
is used here; `otlp.py` decides which spans are kept and where they are sent. A forgotten article gets no span; the process
that publishes it later creates one.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import cast

from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, set_span_in_context, use_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from enricher.worker.records import Batch, DeadLetter, EnrichedRecord, Headers, Outcome, RawRecord, Skipped, Ticket
from enricher.worker.telemetry.instruments import DESTINATION, ERROR_TYPE, GROUP, OPERATION, OUTCOME, SYSTEM
from enricher.worker.telemetry.observed import WorkerFacts

_PARENT, _STATE = "traceparent", "tracestate"
_PARENT_BYTES, _MAX_STATE_BYTES = 55, 512
"""The length of a traceparent, and the longest tracestate that W3C Trace Context asks everybody to propagate."""
_VALID_PARENT = re.compile(rb"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_VALID_STATE = re.compile(rb"[\x20-\x7e\t]+")
MESSAGES = "messaging.batch.message_count"
WINDOWS = "enricher.windows"
TOKENS = "enricher.tokens"
_EVEN = b"02468ace"
"""The last hex digits of a traceparent's flags whose lowest bit, "sampled", is 0."""


@dataclass(frozen=True, slots=True)
class SpanName:
    """One kind of span, for the docs. Spans of a topic append its name; `kind` is OpenTelemetry's."""

    name: str
    kind: str
    description: str
    attributes: tuple[str, ...]


SPANS: tuple[SpanName, ...] = (
    SpanName("process", "consumer", "An article from its arrival to its commit: child of the publisher's span, linked "
             "with its batches and its transaction.", (SYSTEM, OPERATION, DESTINATION, GROUP, OUTCOME, ERROR_TYPE)),
    SpanName("infer", "internal", "A batch from its submission to its labels.", (WINDOWS, TOKENS)),
    SpanName("commit", "client", "A transaction.", (SYSTEM, OPERATION, DESTINATION, GROUP, MESSAGES, ERROR_TYPE)),
)  # fmt: skip


def trace_of(raw: RawRecord) -> Headers:
    """The headers of a record that carry its trace context, at most one of each; empty if there is no valid traceparent.

    If several headers have one name, the last counts. A tracestate that is longer than 512 bytes is left out.
    """
    parent = state = None
    for name, value in raw.headers:
        if name == _PARENT:
            parent = value
        elif name == _STATE:
            state = value
    if parent is None or len(parent) != _PARENT_BYTES or not _VALID_PARENT.fullmatch(parent):
        return ()
    if state is None or len(state) > _MAX_STATE_BYTES or not _VALID_STATE.fullmatch(state):
        return ((_PARENT, parent),)
    return (_PARENT, parent), (_STATE, state)


class ContextPropagation:
    """Copies the publisher's trace context to the output, and makes no spans."""

    def begin_articles(self, tickets: Sequence[Ticket]) -> None:
        """Keep the publisher's context of each record."""
        for ticket in tickets:
            ticket.trace = trace_of(ticket.raw)

    def begin_batch(self, batch: Batch) -> None:
        """Do nothing."""

    def end_batch(self, batch: Batch) -> None:
        """Do nothing."""

    @contextmanager
    def transaction(self, tickets: Sequence[Ticket]) -> Iterator[dict[Ticket, DeadLetter]]:
        """Do nothing."""
        del tickets
        yield {}


class Spans:
    """Makes spans with `tracer`.

    `honours_parents`: the sampler drops every span whose parent is not sampled, so none is made for such an article.
    """

    def __init__(self, tracer: Tracer, worker: WorkerFacts, *, honours_parents: bool) -> None:
        self._tracer = tracer
        self._honours_parents = honours_parents
        self._propagator = TraceContextTextMapPropagator()
        self._commit = f"commit {worker.output_topic}"
        shared = {SYSTEM: "kafka", GROUP: worker.group}
        self._process_attributes = shared | {OPERATION: "process"}
        self._commit_attributes = shared | {OPERATION: "commit", DESTINATION: worker.output_topic}
        self._batches: dict[int, Span] = {}
        """The open span of each submitted batch, by the batch's `id()`."""

    def begin_articles(self, tickets: Sequence[Ticket]) -> None:
        """Start a span for each sampled article. The output carries its context, or else the publisher's."""
        now_ns = time.time_ns()
        for ticket in tickets:
            ticket.trace = trace_of(ticket.raw)
            if not (ticket.trace and self._honours_parents and _is_unsampled(ticket.trace)):
                self._begin(ticket, now_ns)

    def begin_batch(self, batch: Batch) -> None:
        """Start a span for the batch if it contains a traced article, and link it from those articles' spans."""
        traced = _spans_of(batch)
        if not traced:
            return
        attributes = {WINDOWS: len(batch.windows), TOKENS: batch.real_tokens}
        span = self._tracer.start_span("infer", Context(), SpanKind.INTERNAL, attributes)
        self._batches[id(batch)] = span
        for article in traced:
            article.add_link(span.get_span_context())

    def end_batch(self, batch: Batch) -> None:
        """End the span of a batch whose labels have arrived."""
        if span := self._batches.pop(id(batch), None):
            span.end()

    @contextmanager
    def transaction(self, tickets: Sequence[Ticket]) -> Iterator[dict[Ticket, DeadLetter]]:
        """Run the body in a span. On success, link it from the articles' spans and end them; on failure, drop them."""
        traced, substitutes = [ticket for ticket in tickets if ticket.span is not None], dict[Ticket, DeadLetter]()
        if not traced:
            yield substitutes
            return
        attributes = self._commit_attributes | {MESSAGES: len(tickets)}
        span = self._tracer.start_span(self._commit, Context(), SpanKind.CLIENT, attributes)
        # Only the error's class goes into the span: its message may quote the broker.
        with use_span(span, end_on_exit=True, record_exception=False, set_status_on_exception=False):
            try:
                yield substitutes
            except Exception as error:
                _fail(span, type(error).__name__)
                raise
        for ticket in traced:
            _end(ticket, substitutes.get(ticket, ticket.outcome), span)

    def _begin(self, ticket: Ticket, now_ns: int) -> None:
        context = self._propagator.extract(_text(ticket.trace)) if ticket.trace else Context()
        topic = ticket.raw.partition.topic
        attributes = self._process_attributes | {DESTINATION: topic}
        span = self._tracer.start_span(f"process {topic}", context, SpanKind.CONSUMER, attributes, start_time=now_ns)
        if not span.is_recording():
            return
        ticket.span = span
        carrier: dict[str, str] = {}
        self._propagator.inject(carrier, set_span_in_context(span))
        ticket.trace = tuple((name, value.encode()) for name, value in carrier.items())


def _end(ticket: Ticket, outcome: Outcome | None, transaction: Span) -> None:
    span = cast("Span", ticket.span)
    span.add_link(transaction.get_span_context())
    if isinstance(outcome, DeadLetter):
        span.set_attribute(OUTCOME, "dead_letter")
        _fail(span, outcome.error_type)
    else:
        names = {EnrichedRecord: "enriched", Skipped: "skipped"}
        span.set_attribute(OUTCOME, names.get(type(outcome), "tombstone"))
    span.end()


def _fail(span: Span, error_type: str) -> None:
    span.set_attribute(ERROR_TYPE, error_type)
    span.set_status(Status(StatusCode.ERROR))


def _spans_of(batch: Batch) -> list[Span]:
    """The spans of the articles in a batch, each once."""
    tickets = {id(window.ticket): window.ticket for window in batch.windows if window.ticket.span is not None}
    return [cast("Span", ticket.span) for ticket in tickets.values()]


def _is_unsampled(trace: Headers) -> bool:
    """Whether the publisher's span is not sampled."""
    _, parent = trace[0]
    return parent is not None and parent[-1] in _EVEN


def _text(trace: Headers) -> Mapping[str, str]:
    """The headers as text for the propagator."""
    return {name: value.decode("ascii") for name, value in trace if value is not None}
