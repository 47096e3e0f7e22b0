"""Makes the int8 recipe of a checkpoint from unlabelled windows. Runs the steps in order; each step has its own file."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from pydantic import ValidationError

from enricher.errors import ModelError
from enricher.worker.inference.checkpoint.folder import require_ner
from enricher.worker.inference.device.session import SESSION_ERRORS
from enricher.worker.inference.graph.builder import BUILDER_VERSION
from enricher.worker.inference.graph.recipe import Measured, Recipe, TextsUsed
from enricher.workshop.quantisation.gain_choice import Choice, choose
from enricher.workshop.quantisation.held_out import HeldOutComparison
from enricher.workshop.quantisation.kept_products import keep_fewest
from enricher.workshop.quantisation.product_inputs import Observed, build_float32, observe

if TYPE_CHECKING:
    from enricher.worker.inference.checkpoint.folder import Checkpoint, OpenFiles
    from enricher.worker.inference.graph.recipe import TextsFile
    from enricher.worker.records import Window

Progress = Callable[[str, int, int], None]
"""Called with the name of the stage, the number of steps that are done, and of all steps."""
DEFAULT_TARGET = 0.998
"""The least share of tokens whose label must not change: below it, F1 on a gold set moves by more than its own error."""
OBSERVED_TOKENS = 16_384
HELD_OUT_TOKENS = 16_384
"""More tokens hardly change a range, and take minutes with a base-sized model."""


def calibrate(
    checkpoint: Checkpoint,
    windows: Sequence[Window],
    *,
    seed: int,
    texts: TextsFile,
    threads: int,
    progress: Callable[[str, int, int], None],
    target: float = DEFAULT_TARGET,
    scratch: Path | None = None,
) -> Recipe:
    """Choose ranges, gains and the products that are not quantised. Blocks for seconds to minutes.

    The same windows and seed give the same recipe on the same kind of machine. `threads` are used at once. Graphs are
    written into a folder in `scratch`, by default the system's, and removed. If the recipe misses `target`, its
    `measured.missed` says so. Raises ModelError if there are too few windows, or the model cannot be run or written here.
    """
    observed, held_out = divide(windows, seed)
    require_ner(checkpoint)  # ranges are compared by labels
    used = [*observed, *held_out]
    try:
        with tempfile.TemporaryDirectory(prefix="enricher-int8-", dir=scratch) as name:
            path = build_float32(checkpoint, Path(name))
            choices = _choose_all(checkpoint, observe(path, observed, seed, threads, progress), progress)
            recipe = Recipe(
                model_digest=checkpoint.digest,
                builder_version=BUILDER_VERSION,
                seed=seed,
                texts=TextsUsed.model_validate(
                    {**texts.model_dump(), "windows": len(used), "tokens": sum(each.length_tokens for each in used)}
                ),
                inputs=tuple(each.quantised for each in choices),
                kept=(),
                measured=Measured(windows=0, tokens=0, divergence=0.0, equal_labels=0.0, target=target),
            )
            progress("comparing", 0, 1)
            comparison = HeldOutComparison(path, held_out, threads, target)
            return keep_fewest(recipe, choices, comparison.measure, comparison.glance, progress)
    except OSError as error:
        where = scratch or tempfile.gettempdir()
        message = f"int8 cannot be calibrated: {error}. It needs room for three float32 graphs of the model in {where}."
        raise ModelError(message) from error
    except ValidationError as error:
        message = f"int8 cannot be calibrated, because the model computes unusable numbers: {error}. Choose fp32."
        raise ModelError(message) from error
    except SESSION_ERRORS as error:
        message = f"int8 cannot be calibrated, because its graph does not run: {error}. Free memory, or choose bf16."
        raise ModelError(message) from error


def divide(windows: Sequence[Window], seed: int) -> tuple[list[Window], list[Window]]:
    """Windows for ranges, and windows of other articles to judge them by, at most a third. The seed decides the order.

    Raises ModelError if there are too few windows or articles.
    """
    articles: dict[int, list[Window]] = {}
    for window in windows:
        articles.setdefault(id(window.ticket), []).append(window)
    if len(windows) < 3 or len(articles) < 2:
        raise ModelError(
            f"{len(windows)} windows of {len(articles)} articles are too few to calibrate int8 with. "
            f"Give some tens of articles."
        )
    draw, groups = np.random.default_rng(seed), list(articles.values())
    order = [groups[index] for index in draw.permutation(len(groups))]
    third = -(-len(windows) // 3)
    observed: list[Window] = []
    held_out: list[Window] = []
    for article in order:
        (held_out if len(held_out) + len(article) <= third else observed).extend(article)
    if not held_out:
        shortest = min(order, key=len)
        held_out = shortest
        observed = [window for article in order if article is not shortest for window in article]
    return _up_to(_shuffle(observed, draw), OBSERVED_TOKENS), _up_to(_shuffle(held_out, draw), HELD_OUT_TOKENS)


def _shuffle(windows: Sequence[Window], draw: np.random.Generator) -> list[Window]:
    """Shuffle the windows, so that any part of them comes from many articles."""
    return [windows[index] for index in draw.permutation(len(windows))]


def _up_to(windows: Sequence[Window], tokens: int) -> list[Window]:
    ends = np.cumsum([window.length_tokens for window in windows])
    return list(windows[: max(1, int(np.searchsorted(ends, tokens, side="right")))])


def _choose_all(checkpoint: Checkpoint, inputs: Sequence[Observed], progress: Progress) -> list[Choice]:
    """The best candidate for each value. Drops the value's sample afterwards."""
    choices = []
    opened: OpenFiles = {}
    for number, observed in enumerate(inputs, start=1):
        weights = [checkpoint.weight(f"{name}.weight", opened).T for name in observed.products]
        choices.append(choose(observed, weights))
        observed.rows.clear()
        progress("choosing", number, len(inputs))
    return choices
