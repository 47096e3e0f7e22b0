"""Makes the int8 recipe of a checkpoint from unlabelled windows: observes, chooses, and compares with float32.

`graph/int8.py` applies the recipe. Nothing here knows which variant serves (run/selection.py), or sees a gold set.

As few products as possible stay in bf16 or float32 so that the target is reached; often none. Candidates are ranked by how
much the divergence from float32 falls, on held-out windows, if each of them alone is kept, and all others are int8. Only the
values with the largest error are tried, on a part of the windows, because every try makes a graph and runs it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
from onnx import numpy_helper
from pydantic import ValidationError

from enricher.errors import ModelError
from enricher.worker.inference.checkpoint.folder import Checkpoint, require_ner
from enricher.worker.inference.device.sessions import SESSION_ERRORS, Runtime, Session, open_session, openvino_problem
from enricher.worker.inference.graph.builder import BUILDER_VERSION
from enricher.worker.inference.graph.int8 import (
    KeptProduct,
    Measured,
    Recipe,
    TextsFile,
    TextsUsed,
    six_digits,
    write_int8,
)
from enricher.worker.inference.graph.padded import PaddedFloat32
from enricher.worker.records import Float32Array, Window
from enricher.workshop.int8_gains import Choice, Observed, batches_of, build_float32, choose, observe, real_rows

Float64Array = npt.NDArray[np.float64]
Progress = Callable[[str, int, int], None]
"""Called with the name of the stage, the number of steps that are done, and of all steps."""
DEFAULT_TARGET = 0.998
"""The least share of tokens whose label must not change: below it, F1 on a gold set moves by more than its own error."""
OBSERVED_TOKENS = 16_384
HELD_OUT_TOKENS = 16_384
"""The tokens that are observed, and those that are held out. More tokens hardly change a range, and take minutes with a
base-sized model."""


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
            choices = _choose_all(path, observe(path, observed, seed, threads, progress), progress)
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


def _choose_all(path: Path, inputs: Sequence[Observed], progress: Progress) -> list[Choice]:
    """The best candidate for each value. Drops the value's sample afterwards.

    Weights are those of the graph, `[in, out]`: a checkpoint may have several in one, or unscaled.
    """
    choices = []
    tensors = {each.name: each for each in onnx.load(str(path), load_external_data=False).graph.initializer}
    for number, observed in enumerate(inputs, start=1):
        stored = [tensors[f"{name}.weight"] for name in observed.products]
        weights: list[Float32Array] = [numpy_helper.to_array(each, base_dir=str(path.parent)) for each in stored]
        choices.append(choose(observed, weights))
        observed.rows.clear()
        progress("choosing", number, len(inputs))
    return choices


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


_BYTES_PER_TOKEN = 128 * 1024
"""The assumed size of a token's values, which makes batches of about a thousand tokens, like a worker's."""
GLANCE_BATCHES = 4
"""About four thousand tokens, which is enough to rank candidates."""


class HeldOutComparison:
    """The held-out windows with float32's answers to them, with which int8's are compared."""

    def __init__(self, path: Path, windows: list[Window], threads: int, target: float) -> None:
        self._path = path
        self._threads = threads
        self._target = target
        self._batches = batches_of(windows, _BYTES_PER_TOKEN)
        self._few = self._batches[:: -(-len(self._batches) // GLANCE_BATCHES)]
        self._runtime: Runtime = "openvino-bf16" if openvino_problem("bf16") is None else "openvino-fp32"
        session = open_session(path, "cpu", threads_per_run=threads)
        self._expected, self._few_expected = (
            _log_probabilities(self._logits(session, batches)) for batches in (self._batches, self._few)
        )

    def measure(self, recipe: Recipe) -> Measured:
        """Make the int8 graph and run it. Raises ModelError if OpenVINO does not run it."""
        return self._measure(recipe, self._batches, self._expected)

    def glance(self, recipe: Recipe) -> Measured:
        """Measure on GLANCE_BATCHES of the batches, from the shortest windows to the longest."""
        return self._measure(recipe, self._few, self._few_expected)

    def _measure(self, recipe: Recipe, batches: list[list[Window]], expected: Float64Array) -> Measured:
        with tempfile.TemporaryDirectory(prefix="int8-", dir=self._path.parent) as name:
            _, path = write_int8(self._path, Path(name), recipe)
            session = open_session(path, self._runtime, threads_per_run=1, concurrency=self._threads)
            found = _log_probabilities(self._logits(session, batches))
        divergence = (np.exp(expected) * (expected - found)).sum(axis=-1).mean()
        equal = (expected.argmax(axis=-1) == found.argmax(axis=-1)).mean()
        return Measured(
            windows=sum(len(batch) for batch in batches),
            tokens=len(expected),
            divergence=six_digits(divergence),
            equal_labels=six_digits(equal),
            target=self._target,
        )

    def _logits(self, session: Session, batches: list[list[Window]]) -> Float32Array:
        """`float32 [tokens, labels]`."""
        variant = PaddedFloat32()

        def run(batch: list[Window]) -> Float32Array:
            (logits,) = session.run(["logits"], variant.feeds(batch, 0))
            return real_rows(logits, batch)

        with ThreadPoolExecutor(self._threads) as pool:
            return np.concatenate(list(pool.map(run, batches)))


def _log_probabilities(logits: Float32Array) -> Float64Array:
    below = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)
    result: Float64Array = below - np.log(np.exp(below).sum(axis=-1, keepdims=True))
    return result
