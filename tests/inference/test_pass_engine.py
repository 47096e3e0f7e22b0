"""Several heads in one run: each says what it says alone, and a window that fails for one costs only its own article."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from inference.conftest import MakeWindow, parts_of
from support.answers import WindowHeads, WindowLabels, heads_by_window
from support.head_references import REFERENCE, articles, write_folder
from support.sessions import Watched, replace_session, short_of_memory

from enricher.worker.inference.checkpoint.folder import Checkpoint
from enricher.worker.inference.device.sessions import Feeds, Session
from enricher.worker.inference.graph.variants import Variant
from enricher.worker.inference.run.engine import NOT_FINITE, OnnxEngine
from enricher.worker.inference.run.model import PreparedModel, prepare_variant
from enricher.worker.inference.run.selection import variants_for
from enricher.worker.records import Batch, BatchResult, TokenLabels, Window, WindowFailure, WindowRows

VARIANTS = [variant for variant in variants_for("cpu") if variant.problem() is None and not variant.reduced]
NAMES = ["bert", "topics", "tones", "vectors"]
"""The models' names: token classification, classes of which one holds, classes of which several may, and mean vectors."""
EXACT = 1e-5
POISON_ID = 77


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> list[Checkpoint]:
    """Four heads on one encoder."""
    place = tmp_path_factory.mktemp("heads")
    return [
        Checkpoint.open(REFERENCE / "bert"),
        Checkpoint.open(write_folder("bert", "single", place / "topics")),
        Checkpoint.open(write_folder("bert", "multi", place / "tones")),
        Checkpoint.open(write_folder("bert", "mean", place / "vectors")),
    ]


@pytest.fixture(scope="module", params=VARIANTS, ids=lambda variant: variant.name)
def variant(request: pytest.FixtureRequest) -> Variant:
    """Each layout that computes in float32 here."""
    chosen: Variant = request.param
    return chosen


@pytest.fixture(scope="module")
def shared(checkpoints: list[Checkpoint], variant: Variant, cache_dir: Path) -> PreparedModel:
    """One graph with all heads."""
    return prepared(checkpoints, variant, cache_dir)


@pytest.fixture(scope="module")
def alone(checkpoints: list[Checkpoint], variant: Variant, cache_dir: Path, windows: list[Window]) -> list[Answers]:
    """What each head says of each window in its own pass, all windows in one batch."""
    return [answered(engine_of(prepared([each], variant, cache_dir)), [windows])[0] for each in checkpoints]


@pytest.fixture(scope="module")
def windows(window: MakeWindow) -> list[Window]:
    """Of three articles, most of which own only a part of their tokens, and some of 2 to 40 tokens."""
    cuts = articles()
    short = [window([2, *range(5, 5 + owned), 3]) for owned in (0, 1, 7, 38)]
    return [*short, *cuts[40].windows[:9], *cuts[3].windows, *cuts[1].windows]


@dataclass(frozen=True, slots=True)
class Answers:
    """What one head says of some windows, in their order."""

    found: list[WindowLabels | npt.NDArray[np.float32]]

    def same_as(self, others: Answers) -> bool:
        """Equal labels, and numbers that differ by rounding at most. Raises AssertionError where they do not."""
        for ours, theirs in zip(self.found, others.found, strict=True):
            assert isinstance(ours, WindowLabels) == isinstance(theirs, WindowLabels)
            if isinstance(ours, WindowLabels) and isinstance(theirs, WindowLabels):
                assert ours.labels.tolist() == theirs.labels.tolist()
            np.testing.assert_allclose(_numbers(ours), _numbers(theirs), rtol=0, atol=EXACT)
        return True


def _numbers(answer: WindowLabels | npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    return answer.scores if isinstance(answer, WindowLabels) else answer


def prepared(checkpoints: Sequence[Checkpoint], variant: Variant, cache_dir: Path) -> PreparedModel:
    """The graph of these heads."""
    return prepare_variant(checkpoints[0], variant, "cpu", cache_dir=cache_dir, others=checkpoints[1:])


_ENGINES: dict[Path, OnnxEngine] = {}


def engine_of(model: PreparedModel) -> OnnxEngine:
    """An engine for two threads. Others of the same graph run the same session, unless they are given another."""
    if model.onnx_path not in _ENGINES:
        _ENGINES[model.onnx_path] = OnnxEngine(model, threads_per_run=1, pad_id=0, concurrency=2)
    return copy(_ENGINES[model.onnx_path])


def answered(engine: OnnxEngine, batches: Sequence[Sequence[Window]]) -> list[Answers]:
    """What each head says of the windows of these batches, none of which may fail."""
    found = [each for batch in batches for each in heads_by_window(engine.run(Batch(tuple(batch))))]
    rows = [each.heads for each in found if isinstance(each, WindowHeads)]
    assert len(found) == len(rows)
    return [Answers(list(column)) for column in zip(*rows, strict=True)]


@pytest.mark.parametrize("sizes", [[100], [1], [5], [3, 1, 7, 2]], ids=str)
def test_each_head_says_in_a_pass_what_it_says_alone(
    shared: PreparedModel, alone: list[Answers], windows: list[Window], sizes: list[int]
) -> None:
    """Whatever the batch: its labels are equal, and its numbers within rounding."""
    together = answered(engine_of(shared), parts_of(windows, sizes))
    assert len(NAMES) == len(together)
    for ours, theirs in zip(together, alone, strict=True):
        assert ours.same_as(theirs)


@pytest.mark.parametrize("order", [[3, 0, 2, 1], [1, 3], [2, 1, 0, 2], [0, 0]], ids=str)
def test_answers_come_in_the_order_of_the_checkpoints(
    checkpoints: list[Checkpoint],
    variant: Variant,
    cache_dir: Path,
    alone: list[Answers],
    windows: list[Window],
    order: list[int],
) -> None:
    """Whichever head is first, without one for entities, and with the same head twice, as two tasks may have it."""
    engine = engine_of(prepared([checkpoints[index] for index in order], variant, cache_dir))
    (run,) = engine.run(Batch(tuple(windows))).runs
    assert [TokenLabels if index == 0 else WindowRows for index in order] == [type(each) for each in run.heads]
    assert [NAMES[index] for index in order] == [card.name for card in engine.cards]
    for index, found in zip(order, answered(engine, [windows]), strict=True):
        assert found.same_as(alone[index])


def test_a_run_asks_the_session_for_what_it_needs_and_no_more(
    checkpoints: list[Checkpoint], variant: Variant, cache_dir: Path, windows: list[Window]
) -> None:
    """No logits of tokens, which are large; with entities alone the same outputs and inputs as without tasks."""
    asked = []
    for heads in (checkpoints[:1], checkpoints[1:2], checkpoints):
        engine = engine_of(prepared(heads, variant, cache_dir))
        watched = replace_session(engine, Watched)
        engine.run(Batch(tuple(windows)))
        asked.append((list(watched.outputs), watched.feeds.keys() - variant.feeds(windows, 0).keys()))
    shared = ["head.0.labels", "head.0.scores", "head.1.rows", "head.2.rows", "head.3.rows"]
    assert [["labels", "scores"], ["head.0.rows"], shared] == [outputs for outputs, _ in asked]
    assert [False, False, True] == [bool(more) for _, more in asked]


def test_threads_may_run_a_pass_at_once(shared: PreparedModel, alone: list[Answers], windows: list[Window]) -> None:
    """Each gets the rows of its own windows."""
    engine, reversed_windows = engine_of(shared), windows[::-1]
    batches = [[windows], parts_of(reversed_windows, [4])] * 4
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda each: answered(engine, each), batches))
    for number, together in enumerate(results):
        for ours, theirs in zip(together, alone, strict=True):
            assert ours.same_as(Answers(theirs.found[::-1]) if number % 2 else theirs)


def test_a_batch_that_runs_out_of_memory_is_answered_in_full_by_every_head(
    shared: PreparedModel, alone: list[Answers], windows: list[Window]
) -> None:
    """Run in parts, whose rows are joined window by window."""
    short, session = short_of_memory(shared, 200, MemoryError())
    result = short.run(Batch(tuple(windows)))
    assert len(result.runs) > 2
    assert max(session.runs) > 200
    assert result.fits_tokens is not None
    for ours, theirs in zip(answered(short, [windows]), alone, strict=True):
        assert ours.same_as(theirs)


def _keeps_its_own(
    answers: Sequence[WindowHeads | WindowFailure], numbers: Sequence[int], alone: list[Answers]
) -> None:
    """Each answer is what every head says alone of the window with that number."""
    for answer, number in zip(answers, numbers, strict=True):
        assert isinstance(answer, WindowHeads)
        for found, theirs in zip(answer.heads, alone, strict=True):
            assert Answers([found]).same_as(Answers([theirs.found[number]]))


class _NotFiniteHead:
    """A session in which one head gives NaN for windows with POISON_ID, in any batch, and other heads do not."""

    def __init__(self, session: Session, variant: Variant, output: str, windows: Sequence[Window]) -> None:
        self._session, self._variant, self._output, self._windows = session, variant, output, windows

    def run(self, outputs: Sequence[str], feeds: Feeds, /) -> list[npt.NDArray[Any]]:
        """The real outputs, damaged."""
        found = [each.copy() for each in self._session.run(outputs, feeds)]
        poisoned = [each for each in self._windows if POISON_ID in each.ids]
        together = self._windows if feeds["lengths"].size > 1 else poisoned
        starts = self._variant.starts(together, feeds["input_ids"].shape)
        numbers = found[[*outputs].index(self._output)]
        for index, (window, start) in enumerate(zip(together, starts, strict=True)):
            if POISON_ID in window.ids and self._output.endswith("rows"):
                numbers[index, 0] = np.nan
            elif POISON_ID in window.ids:
                numbers.reshape(-1)[start + window.length_tokens - 1] = np.nan
        return found


@pytest.mark.parametrize("head", range(4), ids=NAMES)
def test_a_window_for_which_one_head_is_not_finite_fails_alone(
    shared: PreparedModel, variant: Variant, window: MakeWindow, windows: list[Window], alone: list[Answers], head: int
) -> None:
    """The message names that head's model; of the other windows every head keeps what it says, in the right order.

    So do the other heads of this window, which may be all that its article needs.
    """
    engine = engine_of(shared)
    bad = window([2, 9, POISON_ID, 9, 3])
    batch = [windows[3], bad, windows[12], windows[1]]
    clean = answered(engine, [[bad]])
    output = "head.0.scores" if head == 0 else f"head.{head}.rows"
    replace_session(engine, lambda real: _NotFiniteHead(real, variant, output, batch))
    result = engine.run(Batch(tuple(batch)))
    first, failure, *others = heads_by_window(result)
    assert isinstance(failure, WindowFailure)
    assert (bad, NOT_FINITE, [head]) == (failure.window, failure.error_type, failure.heads)
    assert f"the model's scores for this window are NaN or infinite (of {NAMES[head]})" == failure.message
    _keeps_its_own([first, *others], [3, 12, 1], alone)
    [about_bad] = [BatchResult(Batch((bad,)), [run]) for run in result.runs if bad in run.windows]
    (by_others,) = heads_by_window(about_bad)
    assert isinstance(by_others, WindowHeads)
    for number, (found, right) in enumerate(zip(by_others.heads, clean, strict=True)):
        assert number == head or Answers([found]).same_as(right)
