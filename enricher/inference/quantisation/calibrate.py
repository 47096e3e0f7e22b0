"""Unlabelled windows of a checkpoint -> its int8 recipe. Runs the steps in order; each step has its own file."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from enricher.errors import ModelError
from enricher.inference.graph.builder import BUILDER_VERSION
from enricher.inference.graph.padded import PaddedFloat32
from enricher.inference.quantisation.comparing import Comparing
from enricher.inference.quantisation.observing import (
    SAMPLED_ROWS,
    Observed,
    batches_of,
    build_float32,
    open_observed,
    quantisable,
    real_rows,
)
from enricher.inference.quantisation.recipe import Measured, QuantisedInput, Recipe

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
        inputs = _observe(path, observed, seed, threads, progress)
        recipe = Recipe(
            model_digest=checkpoint.digest,
            builder_version=BUILDER_VERSION,
            seed=seed,
            texts=texts,
            inputs=tuple(_plain(each) for each in inputs),
            kept=(),
            measured=Measured(windows=0, tokens=0, divergence=0.0, equal_labels=0.0, target=target),
        )
        comparing = Comparing(path, held_out, threads, target)
        measured = comparing.measure(recipe, progress)
    return recipe.model_copy(update={"measured": measured})


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


def _observe(path: Path, windows: list[Window], seed: int, threads: int, progress: Progress) -> list[Observed]:
    inputs = quantisable(path)
    session, variant, draw = open_observed(path, inputs, threads), PaddedFloat32(), np.random.default_rng(seed)
    share = SAMPLED_ROWS / sum(window.length_tokens for window in windows)
    done = 0
    for batch in batches_of(windows, 4 * sum(each.width for each in inputs)):
        values = session.run([each.value for each in inputs], variant.feeds(batch, 0))
        chosen = np.flatnonzero(draw.random(sum(window.length_tokens for window in batch)) < share)
        for each, value in zip(inputs, values, strict=True):
            each.take(real_rows(value, batch), chosen)
        done += len(batch)
        progress("observing", done, len(windows))
    return inputs


def _plain(observed: Observed) -> QuantisedInput:
    return QuantisedInput(
        value=observed.value,
        products=observed.products,
        low=min(0.0, float(observed.low.min())),
        high=max(0.0, float(observed.high.max())),
        clip=1.0,
        exponent=0.0,
        gains="",
    )
