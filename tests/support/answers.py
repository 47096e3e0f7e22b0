"""Builds and splits batch results window by window."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from enricher.records import Batch, BatchResult, Float32Array, Int32Array, RunLabels, Window, WindowFailure


@dataclass(frozen=True, slots=True, eq=False)
class WindowLabels:
    """The result for one window: `labels` int32 and `scores` float32, shape `[length]`, special tokens included."""

    window: Window
    labels: Int32Array
    scores: Float32Array


WindowResult = WindowLabels | WindowFailure


def by_window(result: BatchResult) -> list[WindowResult]:
    """The results in the batch's order, exactly one per window."""
    answers: defaultdict[int, list[WindowResult]] = defaultdict(list)
    for failure in result.failures:
        answers[id(failure.window)].append(failure)
    for run in result.runs:
        for window, start in zip(run.windows, run.starts, strict=True):
            its_own = slice(start, start + window.length_tokens)
            answers[id(window)].append(WindowLabels(window, run.labels[its_own], run.scores[its_own]))
    in_order = [answers[id(window)].pop(0) for window in result.batch.windows]
    assert not any(answers.values()), "an answer for each window, and no other"
    return in_order


def batch_result(results: Iterable[WindowResult]) -> BatchResult:
    """The result of an engine without padding: all labels in one run."""
    answers = list(results)
    labelled = [each for each in answers if isinstance(each, WindowLabels)]
    failures = [each for each in answers if isinstance(each, WindowFailure)]
    batch = Batch(tuple(each.window for each in answers))
    return BatchResult(batch, [_one_run(labelled)] if labelled else [], failures)


def _one_run(answers: list[WindowLabels]) -> RunLabels:
    ends = np.cumsum([len(each.labels) for each in answers]).tolist()
    return RunLabels(
        [each.window for each in answers],
        [0, *ends[:-1]],
        np.concatenate([each.labels for each in answers]),
        np.concatenate([each.scores for each in answers]),
    )
