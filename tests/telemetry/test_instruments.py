"""The list of instruments: complete, without duplicates, and with the attributes that it names."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

from telemetry.building import observed, observed_indexer

from deploy.monitoring.generator.exported import EVERY_INSTRUMENT
from deploy.monitoring.generator.tables import metrics, spans
from enricher.indexing.index_instruments import INDEX_INSTRUMENTS
from enricher.worker.stats.counters import MOST_LABELS, Counters, Histogram
from enricher.worker.telemetry.instruments import INSTRUMENTS, Instrument, Kind, Numbers, labels
from enricher.worker.telemetry.tracing import SPANS

BOUNDED = re.compile(r"[\w.:/ -]{1,80}")


def test_no_name_stands_twice() -> None:
    """This holds for instruments and for spans."""
    for names in ([each.name for each in EVERY_INSTRUMENT], [each.name for each in SPANS]):
        assert len(names) == len(set(names))


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
    """Histograms read a histogram, all others numbers, and each has a sentence as description."""
    for instrument, read in READ:
        are_histograms = {isinstance(number, Histogram) for number, _ in read()}
        assert {instrument.kind is Kind.HISTOGRAM} == are_histograms, instrument.name
        assert instrument.description.endswith("."), instrument.name
        assert re.fullmatch(r"(enricher|messaging|process|hw)(\.[a-z_]+)+", instrument.name)


def test_labels_are_bounded_for_each_task() -> None:
    """A model with very many labels makes no more time series."""
    many = {("topics", f"label-{number}"): number for number in range(1_000)}
    counters = Counters(labels=Counter(many))
    numbers = list(labels(observed(counters=counters)))
    assert MOST_LABELS + 1 == len(numbers)
    assert sum(range(1_000)) == sum(number for number, _ in numbers if isinstance(number, int | float))


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


def test_the_tables_have_every_instrument_and_every_span() -> None:
    """One row for each; the site shows them on its page about metrics."""
    assert 2 + len(EVERY_INSTRUMENT) == metrics().count("\n")
    assert 2 + len(SPANS) == spans().count("\n")
