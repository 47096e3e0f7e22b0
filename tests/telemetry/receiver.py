"""A real OTLP receiver over HTTP, which decodes requests with OpenTelemetry's protocol classes."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest as Traces
from support.http_serving import QuietHandler, http_server


@dataclass(slots=True)
class Received:
    """The requests, in order of arrival. `raw` has their bytes, to search for what must not be in them."""

    traces: list[Any] = field(default_factory=list)
    raw: list[bytes] = field(default_factory=list)
    endpoint: str = ""

    def spans(self) -> list[Any]:
        """All received spans."""
        return [
            span
            for request in list(self.traces)
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def resource(self) -> dict[str, str]:
        """The resource attributes of the last spans."""
        return {each.key: each.value.string_value for each in self.traces[-1].resource_spans[0].resource.attributes}


@contextmanager
def http_receiver() -> Iterator[Received]:
    """Listen on loopback over HTTP while the body runs."""
    received = Received()

    class Handler(QuietHandler):
        def _serve(self) -> None:
            body = self.content()
            body = gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body
            received.raw.append(body)
            received.traces.append(Traces.FromString(body))
            self.answer(200)

        do_POST = _serve  # noqa: N815  http.server's name

    with http_server(Handler) as received.endpoint:
        yield received
