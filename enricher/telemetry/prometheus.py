"""The instruments in Prometheus' text form. The client library writes it; nothing here counts anything.

Names follow OpenTelemetry's rules (its page "Prometheus and OpenMetrics Compatibility").
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from enricher.stats.histogram import Histogram
from enricher.telemetry.exposition import exposed
from enricher.telemetry.instruments import INSTRUMENTS, Instrument, Kind
from enricher.telemetry.observed import Observed
from enricher.telemetry.readings import Attributes

_UNITS = {"s": "seconds", "By": "bytes", "1": "ratio"}
_INFO = "info"


def prometheus_name(instrument: Instrument) -> str:
    """The name of its family: the unit is part of it, except where things are merely counted; counters end in `_total`.

    A histogram's series have `_bucket`, `_sum` and `_count` behind it.
    """
    name = _legal(instrument.name)
    unit = _UNITS.get(instrument.unit, "")
    if unit == "ratio" and (instrument.kind is Kind.COUNTER or name.endswith((_INFO, "_state"))):
        unit = ""
    name = f"{name}_{unit}" if unit and not name.endswith(unit) else name
    return f"{name}_total" if instrument.kind is Kind.COUNTER else name


def label_name(attribute: str) -> str:
    """An attribute's name as a label."""
    return _legal(attribute)


def exposition(seen: Observed, accept: str) -> tuple[bytes, str]:
    """All instruments in the form that `accept` (an HTTP header) asks for, and its content type."""
    return exposed(lambda: _families(seen), accept)


def _families(seen: Observed) -> Iterator[Metric]:
    """One per instrument, all of one look at the snapshot."""
    snapshot = seen.snapshot()
    seen = replace(seen, snapshot=lambda: snapshot)
    for instrument in INSTRUMENTS:
        yield _histogram(instrument, seen) if instrument.histogram else _family(instrument, seen)


def _family(instrument: Instrument, seen: Observed) -> Metric:
    assert instrument.numbers is not None
    kind = CounterMetricFamily if instrument.kind is Kind.COUNTER else GaugeMetricFamily
    labels = [label_name(attribute) for attribute in instrument.attributes]
    family = kind(prometheus_name(instrument), instrument.description, labels=labels)
    for number, attributes in instrument.numbers(seen):
        family.add_metric(_values(instrument, attributes), number)
    return family


def _histogram(instrument: Instrument, seen: Observed) -> Metric:
    assert instrument.histogram is not None
    histogram, attributes = instrument.histogram(seen)
    labels = [label_name(attribute) for attribute in instrument.attributes]
    family = HistogramMetricFamily(prometheus_name(instrument), instrument.description, labels=labels)
    family.add_metric(_values(instrument, attributes), _buckets(histogram), histogram.sum)
    return family


def _values(instrument: Instrument, attributes: Attributes) -> list[str]:
    return [attributes[name] for name in instrument.attributes]


def _buckets(histogram: Histogram) -> list[tuple[str, float]]:
    """Cumulative, with `le` as text."""
    total, buckets = 0, []
    for bound, count in zip([*histogram.bounds, float("inf")], list(histogram.counts), strict=True):
        total += count
        buckets.append(("+Inf" if bound == float("inf") else f"{bound:g}", float(total)))
    return buckets


def _legal(name: str) -> str:
    return re.sub(r"[^a-zA-Z0-9_:]", "_", name)
