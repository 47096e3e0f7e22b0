"""The tables of metrics and spans in Markdown: `python -m deploy.monitoring.generator.tables metrics`, or `spans`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

from deploy.monitoring.generator.exported import EVERY_INSTRUMENT
from enricher.worker.telemetry.prometheus import prometheus_name
from enricher.worker.telemetry.tracing import SPANS


def metrics() -> str:
    """A row for each instrument: its name in OpenTelemetry, and below it the name in Prometheus."""
    rows = (
        (
            f"`{each.name}`<br>`{prometheus_name(each)}`",
            f"{each.kind.value}, `{each.unit}`",
            each.description,
            ", ".join(f"`{name}`" for name in each.attributes),
        )
        for each in EVERY_INSTRUMENT
    )
    return _table(("name", "kind, unit", "description", "attributes"), rows)


def spans() -> str:
    """A row for each span."""
    rows = ((f"`{s.name}`", s.kind, s.description, ", ".join(f"`{name}`" for name in s.attributes)) for s in SPANS)
    return _table(("name", "kind", "description", "attributes"), rows)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


if __name__ == "__main__":
    sys.stdout.write({"metrics": metrics, "spans": spans}[sys.argv[1]]())
