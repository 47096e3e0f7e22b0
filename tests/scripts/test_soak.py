"""The soak's judgement of memory samples."""

from __future__ import annotations

import pytest

from tools.soak import growth, is_flat


@pytest.mark.parametrize("sizes", [[100, 130, 90] * 20, [*[100] * 99, 500]], ids=["up and down", "one high sample"])
def test_memory_that_does_not_stay_higher_is_flat(sizes: list[float]) -> None:
    """Buffers come and go; medians are compared."""
    assert is_flat(sizes)


def test_a_leak_is_found() -> None:
    """Negative control: growth of a thousandth per sample is detected."""
    sizes = [1_000.0 + index for index in range(100)]
    assert not is_flat(sizes)
    assert 1_090 < growth(sizes)[1] < 1_100
