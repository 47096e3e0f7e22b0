"""Builds and splits batch results window by window."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from enricher.worker.records import (
    Batch,
    BatchResult,
    Float32Array,
    HeadOutput,
    Int32Array,
    RunOutput,
    TokenLabels,
    Window,
    WindowFailure,
    WindowRows,
)


@dataclass(frozen=True, slots=True, eq=False)
class WindowLabels:
    """The result for one window: `labels` int32 and `scores` float32, shape `[length]`, special tokens included."""

    window: Window
    labels: Int32Array
    scores: Float32Array


@dataclass(frozen=True, slots=True, eq=False)
class WindowHeads:
    """What each head of a pass says about one window: labels of its tokens, or a row `float32 [values]`."""

    window: Window
    heads: Sequence[WindowLabels | Float32Array]


WindowResult = WindowLabels | WindowFailure


def by_window(result: BatchResult) -> list[WindowResult]:
    """The results of a pass with a single head, for entities, in the batch's order, exactly one per window."""
    return [each if isinstance(each, WindowFailure) else _labels(each) for each in heads_by_window(result)]


def labels_of(result: BatchResult) -> list[list[int]]:
    """The labels of each window of such a pass, none of which failed."""
    assert not result.failures
    return [each.labels.tolist() for each in by_window(result) if isinstance(each, WindowLabels)]


def heads_by_window(result: BatchResult) -> list[WindowHeads | WindowFailure]:
    """The results in the batch's order, exactly one per window: a failure, also if only some heads failed."""
    partly = {id(failure.window) for failure in result.failures if failure.heads is not None}
    answers: defaultdict[int, list[WindowHeads | WindowFailure]] = defaultdict(list)
    for failure in result.failures:
        answers[id(failure.window)].append(failure)
    for run in result.runs:
        for index, (window, start) in enumerate(zip(run.windows, run.starts, strict=True)):
            found = [_part(head, window, index, start) for head in run.heads]
            if id(window) not in partly:
                answers[id(window)].append(WindowHeads(window, found))
        assert all(len(run.windows) == len(head.rows) for head in run.heads if isinstance(head, WindowRows))
    in_order = [answers[id(window)].pop(0) for window in result.batch.windows]
    assert not any(answers.values()), "an answer for each window, and no other"
    return in_order


def _part(head: HeadOutput, window: Window, index: int, start: int) -> WindowLabels | Float32Array:
    if isinstance(head, WindowRows):
        row: Float32Array = head.rows[index]
        return row
    its_own = slice(start, start + window.length_tokens)
    return WindowLabels(window, head.labels[its_own], head.scores[its_own])


def _labels(answer: WindowHeads) -> WindowLabels:
    [found] = answer.heads
    assert isinstance(found, WindowLabels)
    return found


def batch_result(results: Iterable[WindowResult]) -> BatchResult:
    """The result of an engine without padding: all labels in one run."""
    answers = list(results)
    labelled = [each for each in answers if isinstance(each, WindowLabels)]
    failures = [each for each in answers if isinstance(each, WindowFailure)]
    batch = Batch(tuple(each.window for each in answers))
    return BatchResult(batch, [_one_run(labelled)] if labelled else [], failures)


def _one_run(answers: list[WindowLabels]) -> RunOutput:
    ends = np.cumsum([len(each.labels) for each in answers]).tolist()
    labels, scores = (
        np.concatenate(parts) for parts in zip(*((each.labels, each.scores) for each in answers), strict=True)
    )
    return RunOutput([each.window for each in answers], [0, *ends[:-1]], [TokenLabels(labels, scores)])
