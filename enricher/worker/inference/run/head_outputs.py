"""The outputs of a run of the model: their names for a graph with given heads, and what they mean."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from enricher.worker.records import Batch, BatchResult, RunOutput, TokenLabels, WindowFailure, WindowRows

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy.typing as npt

    from enricher.worker.heads import HeadSpec
    from enricher.worker.records import HeadOutput, Window

NOT_FINITE = "NotFinite"
"""The `error_type` of a window for which a head gives NaN or infinite numbers. Other types are names of exceptions, or
OUT_OF_MEMORY."""


def output_names(heads: Sequence[HeadSpec]) -> list[str]:
    """The outputs that a run of a graph with these heads needs: two for each `ner`, one for each other."""
    if len(heads) == 1 and _type_of(heads[0]) is TokenLabels:
        return [*TokenLabels.names]
    return [f"head.{index}.{name}" for index, head in enumerate(heads) for name in _type_of(head).names]


def answers_of(outputs: Sequence[npt.NDArray[Any]], heads: Sequence[HeadSpec]) -> list[HeadOutput]:
    """The answers of each head, from the outputs that `output_names` names."""
    arrays = iter(outputs)
    return [_type_of(head).of(arrays) for head in heads]


def _type_of(head: HeadSpec) -> type[HeadOutput]:
    return TokenLabels if head.reads == "tokens" else WindowRows


def fail_non_finite(batch: Batch, run: RunOutput, models: Sequence[str]) -> BatchResult:
    """The result of a run; a head fails on the windows for which it gives a number that is not finite.

    Windows are searched only if there is such a number, which may also be at padding. `models`: the name of each head's
    model, for messages.
    """
    if all(np.isfinite(head.numbers).all() for head in run.heads):
        return BatchResult(batch, [run])
    good, failures = list[int](), list[WindowFailure]()
    for index, (window, start) in enumerate(zip(run.windows, run.starts, strict=True)):
        parts = (head.numbers_about(window, index, start) for head in run.heads)
        failed = [number for number, part in enumerate(parts) if not np.isfinite(part).all()]
        if failed:
            by = f" (of {', '.join(models[number] for number in failed)})" if len(models) > 1 else ""
            message = f"the model's scores for this window are NaN or infinite{by}"
            failures.append(WindowFailure(window, NOT_FINITE, message, failed))
        if len(failed) < len(models):
            good.append(index)
    return BatchResult(batch, [select(run, good)] if good else [], failures)


def leave_out(runs: Iterable[RunOutput], windows: Iterable[Window]) -> list[RunOutput]:
    """The runs without their answers for these windows."""
    left_out = {id(window) for window in windows}
    kept = [(run, [i for i, window in enumerate(run.windows) if id(window) not in left_out]) for run in runs]
    return [select(run, indices) for run, indices in kept if indices]


def select(run: RunOutput, indices: Sequence[int]) -> RunOutput:
    """The answers of a run for some of its windows."""
    if len(indices) == len(run.windows):
        return run
    heads = [head.select(indices) for head in run.heads]
    return RunOutput([run.windows[index] for index in indices], [run.starts[index] for index in indices], heads)
