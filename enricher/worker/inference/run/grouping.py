"""Which tasks go through one pass: those with the same encoder, tokenizer and windows, in the same precision."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from enricher.worker.inference.checkpoint.onnx_folder import OnnxModel
from enricher.worker.inference.checkpoint.same_encoder import first_difference

if TYPE_CHECKING:
    from collections.abc import Sequence

    from enricher.worker.inference.checkpoint.folder import Checkpoint
    from enricher.worker.inference.run.selection import Precision


@dataclass(frozen=True, slots=True)
class PassRequest:
    """The requests of a task to its pass: its checkpoint, how windows are cut, and the precision.

    `windows`: the longest window and the overlap, in tokens; None if those of the others will do.
    """

    checkpoint: Checkpoint
    windows: tuple[int, int] | None
    precision: Precision


@dataclass(frozen=True, slots=True)
class Grouping:
    """`groups`: the indices of the tasks of each pass, both in the order of the tasks.

    `reasons`: for each pass but the first, why its first task shares none of the earlier ones, in their order.
    """

    groups: Sequence[Sequence[int]]
    reasons: Sequence[Sequence[str]]


def group_tasks(requests: Sequence[PassRequest]) -> Grouping:
    """The passes that tasks with these requests need. Reads all weights where encoders look alike. Raises ModelError."""
    groups: list[list[int]] = []
    reasons: list[list[str]] = []
    for index, request in enumerate(requests):
        apart: list[str] = []
        for group in groups:
            reason = _why_not_among([requests[each] for each in group], request)
            if reason is None:
                group.append(index)
                break
            apart.append(reason)
        else:
            groups.append([index])
            reasons.append(apart)
    return Grouping(groups, reasons)


def windows_of(requests: Sequence[PassRequest]) -> tuple[int, int] | None:
    """The windows of a pass with these requests; None if any will do."""
    return next((each.windows for each in requests if each.windows is not None), None)


def why_apart(first: PassRequest, second: PassRequest) -> str | None:
    """Why two tasks cannot share a pass, as a clause; None if they can. Raises ModelError."""
    if first.precision != second.precision:
        return f"precision {first.precision} there, {second.precision} here"
    if first.windows and second.windows and first.windows != second.windows:
        there, here = (_window_text(each) for each in (first.windows, second.windows))
        return f"{there} there, {here} here"
    if isinstance(first.checkpoint, OnnxModel) or isinstance(second.checkpoint, OnnxModel):
        return "a model that is ONNX already runs by itself"
    difference = first_difference(first.checkpoint, second.checkpoint)
    return None if difference is None else f"{difference} differs"


def _window_text(windows: tuple[int, int]) -> str:
    return f"windows of {windows[0]} tokens with an overlap of {windows[1]}"


def _why_not_among(others: Sequence[PassRequest], request: PassRequest) -> str | None:
    """Why a task cannot join a pass. Its encoder is compared with the first one's."""
    first = PassRequest(others[0].checkpoint, windows_of(others), others[0].precision)
    return why_apart(first, request)
