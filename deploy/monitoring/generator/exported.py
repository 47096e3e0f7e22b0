"""The Prometheus series of each instrument, and the instrument of each series."""

from __future__ import annotations

from enricher.worker.telemetry.instruments import INSTRUMENTS, PARENT_INSTRUMENTS, Instrument, Kind
from enricher.worker.telemetry.prometheus import prometheus_name


def series_of(instrument: Instrument) -> tuple[str, ...]:
    """The names of an instrument's series in Prometheus."""
    name = prometheus_name(instrument)
    return (f"{name}_bucket", f"{name}_sum", f"{name}_count") if instrument.kind is Kind.HISTOGRAM else (name,)


def instruments_by_series() -> dict[str, Instrument]:
    """Every series that a worker exports."""
    return {name: instrument for instrument in (*INSTRUMENTS, *PARENT_INSTRUMENTS) for name in series_of(instrument)}
