"""The exposition: a parser of the format reads it, and finds the worker's numbers under the listed names."""

from __future__ import annotations

import re

import pytest
from prometheus_client import parser as text_format
from prometheus_client.openmetrics import parser as openmetrics
from telemetry.building import observed

from enricher.worker.telemetry.instruments import INSTRUMENTS, Kind
from enricher.worker.telemetry.prometheus import exposition, label_name, prometheus_name

OPENMETRICS = "application/openmetrics-text; version=1.0.0"


def samples(accept: str = "") -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """The values by name and labels, as a parser of the format reads them."""
    body, content_type = exposition(observed(), accept)
    parser = openmetrics if "openmetrics" in content_type else text_format
    families = parser.text_string_to_metric_families(body.decode())
    return {(s.name, tuple(sorted(s.labels.items()))): s.value for family in families for s in family.samples}


@pytest.mark.parametrize("accept", ["", "*/*", OPENMETRICS, "text/plain;version=0.0.4", "text/plain;version=x"])
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
    assert 0 == read[without_task, (("enricher_reason", "no_language"),)]
    assert 5 == read["enricher_articles_unmeasured_total", ()]
    assert 3.0 == read["enricher_task_busy_time_seconds_total", (task,)]
    assert 300 == read["enricher_labels_total", (("enricher_label", "ORG"), ("enricher_task", "ner"))]
    assert 1.5 == read["enricher_oldest_age_seconds", ()]
    assert 12.5 == read["enricher_engine_busy_time_seconds_total", ()]
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
