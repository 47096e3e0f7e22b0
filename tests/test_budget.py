"""What a quick run says of its own time: whether it kept its budget, and the slowest files if not."""

from __future__ import annotations

import pytest
from support.budget import PROCESSOR_S, WALL_S, summary

FILES = {f"tests/test_{number}.py": float(number) for number in range(20)}


@pytest.mark.parametrize(("wall_s", "idle"), [(WALL_S, True), (20 * WALL_S, False)])
def test_a_run_within_its_budget_says_what_it_took_and_names_no_file(wall_s: float, idle: bool) -> None:  # noqa: FBT001
    """On a busy machine, whatever the wall time."""
    [line] = summary(wall_s, PROCESSOR_S, idle, FILES)
    assert line.startswith(f"{wall_s} s of wall time")
    assert line.endswith(f"{PROCESSOR_S} s of processor time")


@pytest.mark.parametrize(
    ("wall_s", "processor_s", "idle"),
    [(WALL_S + 1, 10, True), (10, PROCESSOR_S + 1, True), (10, PROCESSOR_S + 1, False)],
)
def test_a_run_beyond_its_budget_names_the_ten_slowest_files(wall_s: float, processor_s: float, idle: bool) -> None:  # noqa: FBT001
    """The slowest first."""
    _, _, *named = summary(wall_s, processor_s, idle, FILES)
    assert [f"tests/test_{number}.py" for number in range(19, 9, -1)] == [line.split()[-1] for line in named]
