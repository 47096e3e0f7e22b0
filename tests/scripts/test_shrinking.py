"""Waiting for work to be done: as long as it is being done."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle

import pytest

from tools.waiting import wait_while_it_shrinks


def test_a_backlog_may_take_any_time_while_it_shrinks() -> None:
    """With articles that come meanwhile."""
    counts = iter([9, 8, 7, 8, 6, 5, 4, 3, 2, 1, 0])
    assert wait_while_it_shrinks(lambda: next(counts), stall_s=60.0, every_s=0.0)


@pytest.mark.parametrize("counts", [[5], [5, 6]], ids=["as it is", "to and fro"])
def test_a_backlog_that_stands_still_is_given_up(counts: Sequence[int]) -> None:
    """However often it is asked for."""
    turns = cycle(counts)
    assert not wait_while_it_shrinks(lambda: next(turns), stall_s=0.05, every_s=0.001)
