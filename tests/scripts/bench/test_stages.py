"""The clocks around the loop's stages: nested stages and the clocks' own cost are subtracted."""

from __future__ import annotations

from itertools import count

import pytest

from tools.bench.stages import STAGES, StageTimes, stage_times


class _Clock:
    """A fake clock on which each reading costs `look_ns`."""

    def __init__(self, look_ns: int) -> None:
        self.now_ns = 0
        self._look_ns = look_ns

    def __call__(self) -> int:
        self.now_ns += self._look_ns
        return self.now_ns


@pytest.mark.parametrize("look_ns", [0, 300])
def test_a_stage_is_counted_without_the_stages_inside_it_and_without_the_clocks(look_ns: int) -> None:
    """The outer stage takes 5 + 7 and the inner one 100, whatever a clock reading costs."""
    outer_name, inner_name = list(STAGES)[:2]
    clock = _Clock(look_ns)
    times = StageTimes(clock)

    def spend(ns: int) -> None:
        clock.now_ns += ns

    inner = times.around(inner_name, lambda: spend(100))

    def outer() -> None:
        spend(5)
        inner()
        spend(7)

    times.around(outer_name, outer)()
    # The first look of the calibration is its own: a twenty-thousandth of one.
    assert times.seconds()[outer_name] == pytest.approx(12e-9, abs=1e-10)
    assert times.seconds()[inner_name] == pytest.approx(100e-9, abs=1e-10)
    assert times.clocked_s == pytest.approx((112 + 4 * look_ns) * 1e-9, abs=1e-10)


def test_a_stage_that_raises_is_counted_too() -> None:
    """The next stage is not counted inside the one that raised."""
    first, second = list(STAGES)[:2]
    ticks = count(step=10)
    times = StageTimes(lambda: next(ticks))

    def fails() -> None:
        message = "such is life"
        raise ValueError(message)

    with pytest.raises(ValueError, match="such is life"):
        times.around(first, fails)()
    times.around(second, lambda: None)()
    assert times.seconds()[first] == times.seconds()[second]


def test_every_stage_names_functions_that_are_there() -> None:
    """A renamed function would leave its stage at zero; afterwards all functions are restored."""
    functions = [(owner, name) for each in STAGES.values() for owner, name in each]
    before = [getattr(owner, name) for owner, name in functions]
    with stage_times():
        assert all(getattr(owner, name) is not it for (owner, name), it in zip(functions, before, strict=True))
    assert before == [getattr(owner, name) for owner, name in functions]
