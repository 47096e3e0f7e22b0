"""Decides which products stay in bf16 or float32: as few as reach the target, or none.

Candidates are ranked by how much the divergence falls if each of them alone is kept, and all others are int8. Only the
values with the largest error are tried, on a part of the windows, because every try makes a graph and runs it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from enricher.worker.inference.graph.recipe import KeptProduct, Measured, Recipe

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from enricher.workshop.quantisation.gain_choice import Choice

HIGHEST_KEPT = 0.5
"""The largest share of the values that may be kept. With more, bf16 is as fast and loses less."""


@dataclass(frozen=True, slots=True)
class _Candidate:
    """One value, and the measurement with only this value kept."""

    value: str
    error: float
    measured: Measured


def keep_fewest(
    recipe: Recipe,
    choices: Sequence[Choice],
    measure: Callable[[Recipe], Measured],
    glance: Callable[[Recipe], Measured],
    progress: Callable[[str, int, int], None],
) -> Recipe:
    """The recipe with as few kept products as reach the target. Blocks.

    If even the most that may be kept miss the target, they are kept, and `measured.missed` says so. `glance` measures on
    fewer windows and ranks the candidates; `measure` decides.
    """
    everything = measure(recipe)
    if everything.missed is None:
        return recipe.model_copy(update={"measured": everything})
    worst = sorted(choices, key=lambda each: each.error, reverse=True)
    tried = worst[: max(1, int(HIGHEST_KEPT * len(worst)))]
    before = glance(recipe)
    ranked: list[_Candidate] = []
    for number, choice in enumerate(tried, start=1):
        value = choice.quantised.value
        ranked.append(_Candidate(value, choice.error, glance(_without(recipe, [value]))))
        progress("searching", number, len(tried))
    ranked.sort(key=lambda each: each.measured.divergence)
    return _smallest_prefix(recipe, ranked, measure, before)


def _smallest_prefix(
    recipe: Recipe, ranked: Sequence[_Candidate], measure: Callable[[Recipe], Measured], before: Measured
) -> Recipe:
    """Bisect for the fewest of `ranked`, best first, that reach the target; all of them if even these miss it."""
    low, high = 0, len(ranked)
    best = _keep(recipe, ranked, measure, before)
    if best.measured.missed:
        return best
    while high - low > 1:
        middle = (low + high) // 2
        found = _keep(recipe, ranked[:middle], measure, before)
        if found.measured.missed is None:
            high, best = middle, found
        else:
            low = middle
    return best


def _keep(
    recipe: Recipe, candidates: Sequence[_Candidate], measure: Callable[[Recipe], Measured], before: Measured
) -> Recipe:
    reasons = {
        each.value: (
            f"kept alone, it changes the divergence from {before.divergence:.3g} to {each.measured.divergence:.3g} "
            f"nats and equal labels from {before.equal_labels:.4%} to {each.measured.equal_labels:.4%}; "
            f"int8 changes its products by {each.error**0.5:.2%}"
        )
        for each in candidates
    }
    kept = tuple(
        KeptProduct(name=product, reason=reasons[quantised.value])
        for quantised in recipe.inputs
        if quantised.value in reasons
        for product in quantised.products
    )
    reduced = _without(recipe, list(reasons))
    return reduced.model_copy(update={"kept": kept, "measured": measure(reduced)})


def _without(recipe: Recipe, values: Sequence[str]) -> Recipe:
    return recipe.model_copy(update={"inputs": tuple(each for each in recipe.inputs if each.value not in values)})
