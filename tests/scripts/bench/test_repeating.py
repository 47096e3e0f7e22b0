"""Interleaved repetitions: contenders take turns, and disturbed runs are repeated."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain, repeat

from tools.bench.machine import Load
from tools.bench.repeating import AGAIN, Run, Spread, interleave, others, rates, ratios


def run(rate: float, others_cores: float = 0.0) -> Run:
    """A run of one second."""
    return Run(rate, Load(1.0, 0.0, others_cores))


def giving(*runs: Run) -> Callable[[], Run]:
    """A contender that returns these runs, the last one forever."""
    each = chain(runs, repeat(runs[-1]))
    return lambda: next(each)


def test_contenders_take_turns() -> None:
    """Contenders alternate, so background load affects all of them."""
    order: list[str] = []

    def contender(name: str) -> Callable[[], Run]:
        def contend() -> Run:
            order.append(name)
            return run(1.0)

        return contend

    interleave({"a": contender("a"), "b": contender("b")}, 3, lambda _: None)
    assert order == ["a", "b"] * 3


def test_a_disturbed_run_is_done_again_and_the_quietest_counts() -> None:
    """A disturbed run is repeated within a bound; then the quietest counts, and is marked."""
    runs = interleave({"a": giving(run(1.0, 0.9), run(2.0, 0.5), run(3.0))}, 2, lambda _: None)["a"]
    assert [each.rate for each in runs] == [3.0, 3.0]
    noisy = [run(float(number), 1.0 - number / 10) for number in range(AGAIN + 2)]
    (kept, _) = interleave({"a": giving(*noisy)}, 2, lambda _: None)["a"]
    assert kept.rate == AGAIN
    assert kept.disturbed


def test_ratios_are_taken_repetition_by_repetition() -> None:
    """Ratios compare runs of the same repetition, so a slow phase of the machine cancels out."""
    fast, slow = [run(4.0), run(2.0), run(8.0)], [run(2.0), run(1.0), run(2.0)]
    assert Spread(2.0, 2.0, 4.0) == ratios(fast, slow)
    assert Spread(4.0, 2.0, 8.0) == rates(fast)
    assert others([run(1.0, 0.1), run(1.0, 0.2)]) == 0.2
