"""The soak's judgement of memory samples."""

from __future__ import annotations

import pytest

from tools.soak import Growth, Sample


def _samples(*sizes: int) -> list[Sample]:
    return [Sample(float(index), size, index) for index, size in enumerate(sizes)]


def test_memory_that_goes_up_and_down_is_flat() -> None:
    """Oscillating memory is flat, because buffers come and go."""
    growth = Growth.of(_samples(*[100, 130, 90] * 20))
    assert growth.flat
    assert growth.share == pytest.approx(0, abs=0.01)


def test_a_leak_is_found() -> None:
    """Negative control: growth of a thousandth per sample is detected."""
    growth = Growth.of(_samples(*[1_000 + index for index in range(100)]))
    assert not growth.flat
    assert 1_090 < growth.end_bytes < 1_100
    assert growth.share > 0.08


def test_one_high_sample_is_no_growth() -> None:
    """A single outlier is no growth, because medians are compared."""
    assert Growth.of(_samples(*[100] * 99, 500)).flat
