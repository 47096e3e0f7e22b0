"""All instruments, the Prometheus series of each, and the instrument of each series."""

from __future__ import annotations

from typing import Any

from enricher.indexing.index_health import INDEX_INSTRUMENTS
from enricher.worker.telemetry.instruments import INSTRUMENTS, Instrument, Kind
from enricher.worker.telemetry.prometheus import prometheus_name

EVERY_INSTRUMENT: tuple[Instrument[Any], ...] = (*INSTRUMENTS, *INDEX_INSTRUMENTS)
"""The instruments of all processes, in the order of the docs."""


def series_of(instrument: Instrument[Any]) -> tuple[str, ...]:
    """The names of an instrument's series in Prometheus."""
    name = prometheus_name(instrument)
    return (f"{name}_bucket", f"{name}_sum", f"{name}_count") if instrument.kind is Kind.HISTOGRAM else (name,)


def instruments_by_series() -> dict[str, Instrument[Any]]:
    """Every series that a worker or an indexer exports."""
    return {name: instrument for instrument in EVERY_INSTRUMENT for name in series_of(instrument)}
