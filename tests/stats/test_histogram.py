"""Histogram count each value once, in the bucket whose upper bound is the first that it does not exceed."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from enricher.worker.stats.counters import Histogram

BOUNDS = (0.1, 1.0, 10.0)
VALUES = st.lists(st.floats(0, 100, allow_nan=False), max_size=50)


def counted(values: list[float]) -> Histogram:
    """A histogram of these."""
    histogram = Histogram(BOUNDS)
    for value in values:
        histogram.add(value)
    return histogram


@given(VALUES)
def test_buckets_are_open_below_and_closed_above(values: list[float]) -> None:
    """As OpenTelemetry and Prometheus have it, against a count by hand."""
    edges = [-np.inf, *BOUNDS, np.inf]
    expected = [sum(low < value <= high for value in values) for low, high in pairwise(edges)]
    assert expected == counted(values).counts
    assert sum(values) == pytest.approx(counted(values).sum)


@given(VALUES.filter(bool), st.floats(0, 1))
def test_a_quantile_lies_in_the_bucket_of_the_value_that_it_stands_for(values: list[float], share: float) -> None:
    """Between the bounds around the value of that rank; above all bounds the last bound is all that is known."""
    rank = max(0, int(np.ceil(share * len(values))) - 1)
    exact = sorted(values)[rank]
    edges = [0.0, *BOUNDS, np.inf]
    upper = next(high for high in edges[1:] if exact <= high)
    lower = edges[edges.index(upper) - 1]
    quantile = counted(values).quantile(share)
    assert quantile is not None
    assert lower <= quantile <= min(upper, BOUNDS[-1])


def test_without_values_there_is_no_quantile() -> None:
    """None, and not 0, which would be a number that nobody measured."""
    assert counted([]).quantile(0.5) is None
