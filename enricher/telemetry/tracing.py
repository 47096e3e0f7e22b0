"""Traces: a span per article as child of its publisher's, linked with the spans of its batches and of its transaction.

The context comes in the record's headers and goes on in its output's (W3C Trace Context). Only OpenTelemetry's API is used
here: which spans are kept, and where they go, `otlp.py` decides. An article that is forgotten gets no span; the process
that publishes it makes one.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import cast

from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, set_span_in_context, use_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from enricher.records import Batch, DeadLetter, EnrichedRecord, Headers, Outcome, RawRecord, Ticket
from enricher.telemetry.readings import DESTINATION, ERROR_TYPE, GROUP, OPERATION, OUTCOME, SYSTEM
from enricher.telemetry.spans import MESSAGES, TOKENS, WINDOWS

TRACE_HEADERS = frozenset({"traceparent", "tracestate"})
_FLAGS_AT, _EVEN = 54, b"02468aceACE"
"""Where a traceparent has the last digit of its flags, whose lowest bit says that its sender keeps the trace."""


def trace_of(raw: RawRecord) -> Headers:
    """The headers of a record that are its trace context."""
    return tuple(header for header in raw.headers if header[0] in TRACE_HEADERS) if raw.headers else ()


class PassingOn:
    """No spans of our own: the publisher's context goes on to the output as it came."""

    def arrived(self, tickets: Sequence[Ticket]) -> None:
        """Note the context of each."""
        for ticket in tickets:
            ticket.trace = trace_of(ticket.raw)

    def submitted(self, batch: Batch) -> None:
        """Nothing."""

    def completed(self, batch: Batch) -> None:
        """Nothing."""

    @contextmanager
    def transaction(self, tickets: Sequence[Ticket]) -> Iterator[dict[Ticket, DeadLetter]]:
        """Nothing."""
        del tickets
        yield {}


class Spans:
    """Makes spans with `tracer`.

    `honours_parents`: its sampler keeps nothing whose parent is not kept, so that such an article costs a look at its
    headers and no more.
    """

    def __init__(
        self, tracer: Tracer, *, input_topic: str, output_topic: str, group: str, honours_parents: bool
    ) -> None:
        self._tracer = tracer
        self._honours_parents = honours_parents
        self._propagator = TraceContextTextMapPropagator()
        self._process = f"process {input_topic}"
        self._commit = f"commit {output_topic}"
        shared = {SYSTEM: "kafka", GROUP: group}
        self._process_attributes = shared | {OPERATION: "process", DESTINATION: input_topic}
        self._commit_attributes = shared | {OPERATION: "commit", DESTINATION: output_topic}
        self._batches: dict[int, Span] = {}
        """By the batch's `id`: from the engine's door to its labels."""

    def arrived(self, tickets: Sequence[Ticket]) -> None:
        """A span for each article that is traced; its context goes on with the output, else the publisher's does."""
        now_ns = time.time_ns()
        for ticket in tickets:
            ticket.trace = trace_of(ticket.raw)
            if not (ticket.trace and self._honours_parents and _unsampled(ticket.trace)):
                self._begin(ticket, now_ns)

    def submitted(self, batch: Batch) -> None:
        """A span for the batch, if an article in it is traced: each of these is linked with it."""
        traced = _spans_of(batch)
        if not traced:
            return
        attributes = {WINDOWS: len(batch.windows), TOKENS: batch.real_tokens}
        span = self._tracer.start_span("infer", Context(), SpanKind.INTERNAL, attributes)
        self._batches[id(batch)] = span
        for article in traced:
            article.add_link(span.get_span_context())

    def completed(self, batch: Batch) -> None:
        """Its labels are there."""
        if span := self._batches.pop(id(batch), None):
            span.end()

    @contextmanager
    def transaction(self, tickets: Sequence[Ticket]) -> Iterator[dict[Ticket, DeadLetter]]:
        """A span around it. When it was committed the articles' own end, each linked with it; else nobody hears of them."""
        traced, substitutes = [ticket for ticket in tickets if ticket.span is not None], dict[Ticket, DeadLetter]()
        if not traced:
            yield substitutes
            return
        attributes = self._commit_attributes | {MESSAGES: len(tickets)}
        span = self._tracer.start_span(self._commit, Context(), SpanKind.CLIENT, attributes)
        # Its message may quote the broker, but the class says enough: no text that we do not know goes into a span.
        with use_span(span, end_on_exit=True, record_exception=False, set_status_on_exception=False):
            try:
                yield substitutes
            except Exception as error:
                _failed(span, type(error).__name__)
                raise
        for ticket in traced:
            _end(ticket, substitutes.get(ticket, ticket.outcome), span)

    def _begin(self, ticket: Ticket, now_ns: int) -> None:
        context = self._propagator.extract(_text(ticket.trace)) if ticket.trace else Context()
        span = self._tracer.start_span(
            self._process, context, SpanKind.CONSUMER, self._process_attributes, start_time=now_ns
        )
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
        _failed(span, outcome.error_type)
    else:
        span.set_attribute(OUTCOME, "enriched" if isinstance(outcome, EnrichedRecord) else "tombstone")
    span.end()


def _failed(span: Span, error_type: str) -> None:
    span.set_attribute(ERROR_TYPE, error_type)
    span.set_status(Status(StatusCode.ERROR))


def _spans_of(batch: Batch) -> list[Span]:
    """Of the articles in it, each once."""
    tickets = {id(window.ticket): window.ticket for window in batch.windows if window.ticket.span is not None}
    return [cast("Span", ticket.span) for ticket in tickets.values()]


def _unsampled(trace: Headers) -> bool:
    """Whether its sender keeps nothing. Of one that is too short to be a context the propagator makes none."""
    value = dict(trace).get("traceparent") or b""
    return len(value) > _FLAGS_AT and value[_FLAGS_AT] in _EVEN


def _text(trace: Headers) -> Mapping[str, str]:
    """As the propagator reads it. What is no ASCII is no context."""
    return {name: value.decode("ascii", "replace") for name, value in trace if value is not None}
