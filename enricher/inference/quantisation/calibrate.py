"""Unlabelled windows of a checkpoint -> its int8 recipe. Runs the steps in order; each step has its own file."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from enricher.errors import ModelError
from enricher.inference.graph.builder import BUILDER_VERSION
from enricher.inference.quantisation.choosing import Choice, choose
from enricher.inference.quantisation.comparing import Comparing
from enricher.inference.quantisation.keeping import keep_fewest
from enricher.inference.quantisation.observing import Observed, build_float32, observe
from enricher.inference.quantisation.recipe import Measured, Recipe

if TYPE_CHECKING:
    from enricher.inference.checkpoint.folder import Checkpoint
    from enricher.inference.quantisation.recipe import TextsUsed
    from enricher.records import Window

Progress = Callable[[str, int, int], None]
"""Called with the name of the stage, what is done, and all."""
DEFAULT_TARGET = 0.998
"""Share of tokens whose label may not change: with less, F1 on a gold set moves by more than its own error."""
OBSERVED_TOKENS = 16_384
HELD_OUT_TOKENS = 16_384
"""More hardly change a range, and take minutes with a base-sized model."""


def calibrate(
    checkpoint: Checkpoint,
    windows: Sequence[Window],
    *,
    seed: int,
    texts: TextsUsed,
    threads: int,
    progress: Callable[[str, int, int], None],
    target: float = DEFAULT_TARGET,
) -> Recipe:
    """Choose ranges, gains and the products that are not quantised. Blocks: seconds to minutes.

    The same windows and seed give the same recipe on the same machine. `threads` are used at once. Raises ModelError if
    there are too few windows, or OpenVINO does not run here.
    """
    observed, held_out = _divided(windows, seed)
    with tempfile.TemporaryDirectory(prefix="enricher-int8-") as name:
        path = build_float32(checkpoint, Path(name))
        choices = _chosen(checkpoint, observe(path, observed, seed, threads, progress), progress)
        recipe = Recipe(
            model_digest=checkpoint.digest,
            builder_version=BUILDER_VERSION,
            seed=seed,
            texts=texts,
            inputs=tuple(each.quantised for each in choices),
            kept=(),
            measured=Measured(windows=0, tokens=0, divergence=0.0, equal_labels=0.0, target=target),
        )
        progress("comparing", 0, 1)
        comparing = Comparing(path, held_out, threads, target)
        return keep_fewest(recipe, choices, comparing.measure, comparing.glance, progress)


def _divided(windows: Sequence[Window], seed: int) -> tuple[list[Window], list[Window]]:
    """Windows for ranges, and others to judge them: two thirds and one third, in an order that follows from the seed."""
    if len(windows) < 3:
        raise ModelError(
            f"{len(windows)} windows of text are too few to calibrate int8 with. Give some tens of articles."
        )
    order = [windows[index] for index in np.random.default_rng(seed).permutation(len(windows))]
    third = -(-len(order) // 3)
    return _up_to(order[third:], OBSERVED_TOKENS), _up_to(order[:third], HELD_OUT_TOKENS)


def _up_to(windows: Sequence[Window], tokens: int) -> list[Window]:
    ends = np.cumsum([window.length_tokens for window in windows])
    return list(windows[: max(1, int(np.searchsorted(ends, tokens, side="right")))])


def _chosen(checkpoint: Checkpoint, inputs: Sequence[Observed], progress: Progress) -> list[Choice]:
    """The best candidate for each value. Its sample is dropped afterwards."""
    choices = []
    for number, observed in enumerate(inputs, start=1):
        weights = [checkpoint.weight(f"{name}.weight").T for name in observed.products]
        choices.append(choose(observed, weights))
        observed.rows.clear()
        progress("choosing", number, len(inputs))
    return choices
