"""The instruments as Prometheus or OpenMetrics text. The client library writes it; nothing is counted here.

Names follow OpenTelemetry's page "Prometheus and OpenMetrics Compatibility".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from enricher.stats.histogram import Histogram
from enricher.stats.snapshot import WorkerState
from enricher.telemetry.instruments import INSTRUMENTS, OLDEST_AGE, Instrument, Kind
from enricher.telemetry.observed import Observed
from enricher.telemetry.readings import STATE, Attributes, Numbers, states_of

PLAIN = "text/plain"
_UNITS = {"s": "seconds", "By": "bytes", "1": "ratio"}
_INFO = "info"


def prometheus_name(instrument: Instrument) -> str:
    """The name of its metric family. It ends in the unit, except for plain counts; counters end in `_total`.

    A histogram's series append `_bucket`, `_sum` and `_count`.
    """
    name = _legal(instrument.name)
    unit = _UNITS.get(instrument.unit, "")
    if unit == "ratio" and (instrument.kind is Kind.COUNTER or name.endswith((_INFO, "_state"))):
        unit = ""
    name = f"{name}_{unit}" if unit and not name.endswith(unit) else name
    return f"{name}_total" if instrument.kind is Kind.COUNTER else name


def label_name(attribute: str) -> str:
    """The label that an attribute becomes."""
    return _legal(attribute)


def exposition(seen: Observed, accept: str) -> tuple[bytes, str]:
    """All instruments in the format that the HTTP header `accept` asks for, and its content type."""
    return encoded(lambda: _families(seen), accept)


def starting_exposition(accept: str) -> tuple[bytes, str]:
    """What is served before there is a worker: its state."""
    return encoded(lambda: [_family(_named(STATE), states_of(WorkerState.STARTING))], accept)


def oldest_age_exposition(age_s: float) -> str:
    """The age of the oldest unprocessed record alone, as plain text."""
    return encoded(lambda: [_family(_named(OLDEST_AGE), [(age_s, {})])], PLAIN)[0].decode()


def encoded(families: Callable[[], Iterable[Metric]], accept: str) -> tuple[bytes, str]:
    """These families in the format that `accept` asks for, and its content type."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Families(families))
    try:
        encode, content_type = choose_encoder(accept)
    except TypeError:  # the library compares version numbers, and a client may send one that is none
        encode, content_type = choose_encoder("")
    return encode(registry), content_type


class _Families(Collector):
    def __init__(self, families: Callable[[], Iterable[Metric]]) -> None:
        self._families = families

    def describe(self) -> Iterable[Metric]:
        """Return nothing: otherwise the registry would collect to find out."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """Return each family once, as the format requires."""
        return self._families()


def _named(name: str) -> Instrument:
    return next(instrument for instrument in INSTRUMENTS if instrument.name == name)


def _families(seen: Observed) -> Iterator[Metric]:
    """One family per instrument, all from one snapshot."""
    snapshot = seen.snapshot()
    seen = replace(seen, snapshot=lambda: snapshot)
    for instrument in INSTRUMENTS:
        if instrument.histogram:
            yield _histogram(instrument, *instrument.histogram(seen))
        else:
            assert instrument.numbers is not None
            yield _family(instrument, instrument.numbers(seen))


def _family(instrument: Instrument, numbers: Numbers) -> Metric:
    kind = CounterMetricFamily if instrument.kind is Kind.COUNTER else GaugeMetricFamily
    family = kind(prometheus_name(instrument), instrument.description, labels=_labels(instrument))
    for number, attributes in numbers:
        family.add_metric(_values(instrument, attributes), number)
    return family


def _histogram(instrument: Instrument, histogram: Histogram, attributes: Attributes) -> Metric:
    family = HistogramMetricFamily(prometheus_name(instrument), instrument.description, labels=_labels(instrument))
    family.add_metric(_values(instrument, attributes), _buckets(histogram), histogram.sum)
    return family


def _labels(instrument: Instrument) -> list[str]:
    return [label_name(attribute) for attribute in instrument.attributes]


def _values(instrument: Instrument, attributes: Attributes) -> list[str]:
    return [attributes[name] for name in instrument.attributes]


def _buckets(histogram: Histogram) -> list[tuple[str, float]]:
    """Cumulative counts, each with its bound `le` as text."""
    total, buckets = 0, []
    for bound, count in zip([*histogram.bounds, float("inf")], list(histogram.counts), strict=True):
        total += count
        buckets.append(("+Inf" if bound == float("inf") else f"{bound:g}", float(total)))
    return buckets


def _legal(name: str) -> str:
    return re.sub(r"[^a-zA-Z0-9_:]", "_", name)
