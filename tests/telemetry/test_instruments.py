"""The list of instruments, complete and bounded, and its exposition: a parser of the format finds the listed names.

Figures about the GPU come from a stand-in for NVIDIA's management library.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from prometheus_client import parser as text_format
from prometheus_client.openmetrics import parser as openmetrics
from telemetry.building import observed, observed_indexer

from deploy.monitoring.generator.exported import EVERY_INSTRUMENT
from deploy.monitoring.generator.files import ALERTS
from enricher.indexing.index_health import INDEX_INSTRUMENTS
from enricher.worker.stats import MOST_LABELS, Counters, Histogram
from enricher.worker.telemetry.instruments import (
    INSTRUMENTS,
    Instrument,
    Kind,
    Numbers,
)
from enricher.worker.telemetry.observed import GpuUse, gpu_meter
from enricher.worker.telemetry.prometheus import exposition, label_name, prometheus_name
from enricher.worker.telemetry.tracing import SPANS

BOUNDED = re.compile(r"[\w.:/ -]{1,80}")
READ: list[tuple[Instrument[Any], Callable[[], Numbers]]] = [
    *((each, partial(each.read, observed())) for each in INSTRUMENTS),
    *((each, partial(each.read, observed_indexer())) for each in INDEX_INSTRUMENTS),
]
"""Each instrument, and what it reads of a process that has worked."""


def test_numbers_carry_the_attributes_that_the_list_names() -> None:
    """An instrument has exactly the listed attributes, with short values; each has a number for a worker that has worked."""
    for instrument, read in READ:
        told = list(read())
        assert told, instrument.name
        for _, values in told:
            assert len(instrument.attributes) == len(values), instrument.name
            assert all(BOUNDED.fullmatch(value) for value in values), instrument.name


def test_an_instrument_is_one_thing() -> None:
    """Histograms read a histogram, all others numbers. Each has its own name, and a sentence as description."""
    for names in ([each.name for each in EVERY_INSTRUMENT], [each.name for each in SPANS]):
        assert len(names) == len(set(names))
    for instrument, read in READ:
        are_histograms = {isinstance(number, Histogram) for number, _ in read()}
        assert {instrument.kind is Kind.HISTOGRAM} == are_histograms, instrument.name
        assert instrument.description.endswith("."), instrument.name
        assert re.fullmatch(r"(enricher|messaging|process|hw)(\.[a-z_]+)+", instrument.name)


def test_without_tasks_only_labels_are_told_by_task() -> None:
    """The metrics of a worker with one model have no others."""
    told = {
        each.name: list(each.read(observed(counters=Counters(labels=Counter({("ner", "ORG"): 3})))))
        for each in INSTRUMENTS
    }
    assert [(3, ("ner", "ORG"))] == told["enricher.labels"]
    assert {name: [] for name in told if name.startswith("enricher.task.")} == {
        name: numbers for name, numbers in told.items() if name.startswith("enricher.task.")
    }


def test_the_alert_leaves_out_tasks_whose_workers_count_different_labels() -> None:
    """From the bound on, each worker counts those labels that it found first."""
    rules = [rule for group in yaml.safe_load(ALERTS.read_text("utf-8"))["groups"] for rule in group["rules"]]
    (alert,) = (rule for rule in rules if rule["alert"] == "EnricherLabelDrift")
    assert f"< {MOST_LABELS}" in alert["expr"]


OPENMETRICS = "application/openmetrics-text; version=1.0.0"


def samples(accept: str = "") -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """The values by name and labels, as a parser of the format reads them."""
    body, content_type = exposition(observed(), accept)
    parser = openmetrics if "openmetrics" in content_type else text_format
    families = parser.text_string_to_metric_families(body.decode())
    return {(s.name, tuple(sorted(s.labels.items()))): s.value for family in families for s in family.samples}


@pytest.mark.parametrize("accept", ["", OPENMETRICS, "text/plain;version=x"])
def test_every_instrument_is_there_in_every_form(accept: str) -> None:
    """The samples have exactly the labels that the list names."""
    found = {(name, frozenset(dict(labels))) for name, labels in samples(accept)}
    for instrument in INSTRUMENTS:
        labels = {label_name(attribute) for attribute in instrument.attributes}
        suffix = "_count" if instrument.kind is Kind.HISTOGRAM else ""
        assert (prometheus_name(instrument) + suffix, frozenset(labels)) in found


def test_numbers_are_the_workers() -> None:
    """Spot checks of each kind of instrument."""
    read = samples()
    assert 40 == read["enricher_articles_total", (("enricher_outcome", "enriched"),)]
    assert 100 == read["enricher_tokens_total", (("enricher_token_kind", "padding"),)]
    task = ("enricher_task", "topics")
    assert 9 == read["enricher_task_articles_total", (("enricher_outcome", "skipped"), task)]
    without_task = "enricher_articles_without_task_total"
    assert 4 == read[without_task, (("enricher_reason", "other_language"),)]
    assert 5 == read["enricher_articles_unmeasured_total", ()]
    assert 300 == read["enricher_labels_total", (("enricher_label", "ORG"), ("enricher_task", "ner"))]
    assert 1.5 == read["enricher_oldest_age_seconds", ()]
    assert 0.75 == read["hw_gpu_utilization_ratio", (("hw_name", "NVIDIA H200"),)]
    assert (
        7
        == read[
            "enricher_partition_lag",
            (("messaging_destination_name", "articles"), ("messaging_destination_partition_id", "0")),
        ]
    )
    assert 1 == read["enricher_state", (("enricher_state", "working"),)]
    assert 0 == read["enricher_state", (("enricher_state", "draining"),)]


def test_buckets_are_cumulative() -> None:
    """Each bucket counts all values up to its bound, the last one all values."""
    read = samples()
    assert 1 == read["enricher_article_latency_seconds_bucket", (("le", "0.1"),)]
    assert 3 == read["enricher_article_latency_seconds_bucket", (("le", "0.25"),)]
    assert 4 == read["enricher_article_latency_seconds_bucket", (("le", "+Inf"),)]
    assert 4 == read["enricher_article_latency_seconds_count", ()]
    assert pytest.approx(4.403) == read["enricher_article_latency_seconds_sum", ()]


def test_names_are_legal_and_no_two_are_one() -> None:
    """Names use Prometheus' characters; counters end in `_total`, times in `_seconds`, sizes in `_bytes`."""
    names = [prometheus_name(instrument) for instrument in INSTRUMENTS]
    assert len(names) == len(set(names))
    for instrument, name in zip(INSTRUMENTS, names, strict=True):
        assert re.fullmatch(r"[a-z_:][a-z0-9_:]*", name)
        assert (instrument.kind is Kind.COUNTER) == name.endswith("_total")
        base = name.removesuffix("_total")
        assert (instrument.unit == "s") == base.endswith("_seconds")
        assert (instrument.unit == "By") == base.endswith("_bytes")


BUS_ID, UUID = "0000:3B:00.0", "abababab-abab-abab-abab-ababababab01"


class NVMLError(Exception):
    """As the library's: every error is one."""


class Nvml:
    """Devices by PCI bus id and by UUID; what a MIG slice does not have is refused."""

    NVMLError = NVMLError

    def __init__(self, *, mig: bool = False) -> None:
        self.devices = {BUS_ID: "NVIDIA H200", "0000:05:00.0": "NVIDIA L4"}
        self.slices = {f"MIG-{UUID}": "NVIDIA H200 MIG 1g.18gb"} if mig else {}
        self.lost = False

    def nvmlInit(self) -> None:  # noqa: N802  the library's names
        """Succeed."""

    def nvmlDeviceGetHandleByPciBusId(self, key: str) -> str:  # noqa: N802
        """The handle is the name."""
        handles = self.devices | self.slices
        if key not in handles:
            raise NVMLError("Not Found")
        return handles[key]

    nvmlDeviceGetHandleByUUID = nvmlDeviceGetHandleByPciBusId  # noqa: N815  of slices

    def nvmlDeviceGetName(self, handle: str) -> str:  # noqa: N802
        """Refused once the device is lost."""
        if self.lost:
            raise NVMLError("GPU is lost")
        return handle

    def nvmlDeviceGetMemoryInfo(self, handle: str) -> SimpleNamespace:  # noqa: N802
        """A slice has its own memory."""
        return SimpleNamespace(used=3, total=18 if handle in self.slices.values() else 141)

    def nvmlDeviceGetUtilizationRates(self, handle: str) -> SimpleNamespace:  # noqa: N802
        """Not supported for slices, nor for a GPU that is divided into them."""
        if self.slices:
            raise NVMLError("Not Supported")
        return SimpleNamespace(gpu=75 if handle == "NVIDIA H200" else 0)


def read(monkeypatch: pytest.MonkeyPatch, nvml: Nvml, bus_id: str = BUS_ID) -> list[GpuUse]:
    """What the meter of that GPU says."""
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    return list(gpu_meter(bus_id, UUID)())


def test_the_gpu_in_use_is_read_whatever_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """By its PCI bus id: the library counts also those that the process does not see. A slice has its own memory."""
    assert [GpuUse("NVIDIA H200", 0.75, 3, 141)] == read(monkeypatch, Nvml())
    assert [GpuUse("NVIDIA L4", 0.0, 3, 141)] == read(monkeypatch, Nvml(), "0000:05:00.0")
    assert [GpuUse("NVIDIA H200 MIG 1g.18gb", None, 3, 18)] == read(monkeypatch, Nvml(mig=True))


def test_a_utilization_that_is_unknown_is_no_sample() -> None:
    """Nor is it 0, which would look like an idle GPU; the memory is there."""
    gpu = GpuUse("NVIDIA H200 MIG 1g.18gb", None, 3, 18)
    body, _ = exposition(replace(observed(), gpus=lambda: [gpu]), "")
    found = [line for line in body.decode().splitlines() if "1g.18gb" in line]
    assert ["hw_gpu_memory_usage_bytes", "hw_gpu_memory_limit_bytes"] == [line.partition("{")[0] for line in found]


def test_a_gpu_that_cannot_be_read_gives_no_figures(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The log says so once, at the start. One that is lost later the engine reports; the library is optional."""
    caplog.set_level("INFO")
    assert [] == read(monkeypatch, Nvml(), "0000:99:00.0")
    assert ["no GPU metrics: NVMLError: Not Found (install the extra `cuda`)"] == caplog.messages
    nvml = Nvml()
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    meter = gpu_meter(BUS_ID, None)
    assert len(meter()) == 1
    nvml.lost = True
    assert () == tuple(meter())
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert () == tuple(gpu_meter(BUS_ID, UUID)())
