"""The page about metrics and spans, made from their lists: `python -m enricher.telemetry.page > deploy/metrics.md`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

from enricher.telemetry.instruments import INSTRUMENTS
from enricher.telemetry.prometheus import prometheus_name
from enricher.telemetry.spans import SPANS

_HEAD = """# Metrics and traces

Made from the lists in `enricher/telemetry/` by `python -m enricher.telemetry.page`; a test compares them.

The same numbers go two ways: Prometheus scrapes `/metrics`, and OTLP sends them where the standard variables say
(`OTEL_EXPORTER_OTLP_ENDPOINT` switches it on; HTTP, or gRPC with the extra `grpc`; interval, headers,
certificates, resource attributes and sampler by the other `OTEL_*`). `OTEL_SDK_DISABLED=true`, or `none` as
`OTEL_METRICS_EXPORTER` or `OTEL_TRACES_EXPORTER`, switches it off. No text, id, key or offset of an article is in any of it.
"""

_METRICS = """
## Metrics

A name is OpenTelemetry's; below it Prometheus'. Labels in Prometheus have `_` for each `.`. Histograms are cumulative in
OTLP.
"""

_SPANS = """
## Spans

The context comes in a record's headers `traceparent` and `tracestate` (W3C Trace Context), and goes on in its output's.
Without traces of our own it is passed on as it came; a dead letter keeps the headers of its input.
"""


def markdown() -> str:
    """The page."""
    metrics = (
        (
            f"`{each.name}`<br>`{prometheus_name(each)}`",
            f"{each.kind.value}, `{each.unit}`",
            each.description,
            ", ".join(f"`{name}`" for name in each.attributes),
        )
        for each in INSTRUMENTS
    )
    spans = ((f"`{s.name}`", s.kind, s.description, ", ".join(f"`{name}`" for name in s.attributes)) for s in SPANS)
    return "".join(
        [
            *(_HEAD, _METRICS, _table(("name", "kind, unit", "what it is", "attributes"), metrics)),
            *(_SPANS, _table(("name", "kind", "what it is", "attributes"), spans)),
        ]
    )


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n" + "".join(f"| {' | '.join(line)} |\n" for line in lines)


if __name__ == "__main__":
    sys.stdout.write(markdown())
