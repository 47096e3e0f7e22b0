"""The instruments as Prometheus or OpenMetrics text, which the client library writes. Counts nothing.

Names follow OpenTelemetry's page "Prometheus and OpenMetrics Compatibility".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeVar, cast

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder

from enricher.worker.stats import Histogram, WorkerState
from enricher.worker.telemetry.instruments import INSTRUMENTS, STATE, Instrument, Kind, Numbers, states_of
from enricher.worker.telemetry.observed import Observed

PLAIN = "text/plain"
Seen = TypeVar("Seen")
_UNITS = {"s": "seconds", "By": "bytes", "1": "ratio"}
_FAMILIES: dict[Kind, Any] = {  # `Any`, because their `add_metric` takes different arguments
    Kind.COUNTER: CounterMetricFamily,
    Kind.GAUGE: GaugeMetricFamily,
    Kind.HISTOGRAM: HistogramMetricFamily,
}


def prometheus_name(instrument: Instrument[Any]) -> str:
    """The name of its metric family. It ends in the unit, except for plain counts; counters end in `_total`.

    The series of a histogram have `_bucket`, `_sum` and `_count` after it.
    """
    name = label_name(instrument.name)
    unit = _UNITS.get(instrument.unit, "")
    if unit == "ratio" and (instrument.kind is Kind.COUNTER or name.endswith(("info", "_state"))):
        unit = ""
    name = f"{name}_{unit}" if unit and not name.endswith(unit) else name
    return f"{name}_total" if instrument.kind is Kind.COUNTER else name


def label_name(attribute: str) -> str:
    """The name of the label for an attribute."""
    return re.sub(r"[^a-zA-Z0-9_:]", "_", attribute)


def exposition(seen: Observed, accept: str) -> tuple[bytes, str]:
    """All instruments, from one snapshot, in the format that the HTTP header `accept` asks for, and its content type."""
    snapshot = seen.snapshot()
    seen = replace(seen, snapshot=lambda: snapshot)
    return encode_families(families_of(INSTRUMENTS, seen), accept)


def families_of(instruments: Iterable[Instrument[Seen]], seen: Seen) -> Iterator[Metric]:
    """The instruments as metrics of the library; each is read when the iterator reaches it."""
    return (_family(instrument, instrument.read(seen)) for instrument in instruments)


def starting_exposition(accept: str) -> tuple[bytes, str]:
    """The metrics before the worker is built: only its state."""
    return encode_families([_family(_instrument(STATE), states_of(WorkerState.STARTING))], accept)


def encode_families(families: Iterable[Metric], accept: str) -> tuple[bytes, str]:
    """The families in the format that `accept` asks for, and its content type."""
    try:
        encode, content_type = choose_encoder(accept)
    except TypeError:  # the library compares version numbers, and a client may send text instead
        encode, content_type = choose_encoder("")
    return encode(_Families(families)), content_type


@dataclass(frozen=True, slots=True)
class _Families:
    """The collector that the library's encoders call."""

    families: Iterable[Metric]

    def collect(self) -> Iterable[Metric]:
        return self.families


def _instrument(name: str) -> Instrument[Observed]:
    return next(each for each in INSTRUMENTS if each.name == name)


def _family(instrument: Instrument[Any], numbers: Numbers) -> Metric:
    labels = [label_name(attribute) for attribute in instrument.attributes]
    family = _FAMILIES[instrument.kind](prometheus_name(instrument), instrument.description, labels=labels)
    for number, values in numbers:
        value = (_buckets(number), number.sum) if isinstance(number, Histogram) else (number,)
        family.add_metric(values, *value)
    return cast("Metric", family)


def _buckets(histogram: Histogram) -> list[tuple[str, float]]:
    """Cumulative counts, each with its bound `le` as text."""
    total, buckets = 0, []
    for bound, count in zip([*histogram.bounds, float("inf")], list(histogram.counts), strict=True):
        total += count
        buckets.append(("+Inf" if bound == float("inf") else f"{bound:g}", float(total)))
    return buckets
