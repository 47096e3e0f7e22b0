"""Which tasks go through one pass: those with the same encoder, tokenizer and windows, in the same precision."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from enricher.worker.inference.checkpoint.onnx_folder import OnnxModel
from enricher.worker.inference.checkpoint.same_encoder import first_difference

if TYPE_CHECKING:
    from collections.abc import Sequence

    from enricher.worker.inference.checkpoint.folder import Checkpoint
    from enricher.worker.runtime.devices import Precision


@dataclass(frozen=True, slots=True)
class PassRequest:
    """The needs of a task. `windows`: the longest window and the overlap, in tokens; None if any will do."""

    checkpoint: Checkpoint
    windows: tuple[int, int] | None
    precision: Precision


@dataclass(frozen=True, slots=True)
class Grouping:
    """`groups`: the indices of the tasks of each pass, both in the order of the tasks.

    `reasons`: for each pass but the first, why its first task cannot join each of the earlier passes, in their order.
    """

    groups: Sequence[Sequence[int]]
    reasons: Sequence[Sequence[str]]


def group_tasks(requests: Sequence[PassRequest]) -> Grouping:
    """Group tasks into passes. Reads all weights of encoders whose configuration is the same. Raises ModelError."""
    groups: list[list[int]] = []
    reasons: list[list[str]] = []
    for index, request in enumerate(requests):
        obstacles: list[str] = []
        for group in groups:
            members = [requests[each] for each in group]
            # Encoders are the same in the whole group, so the first one stands for all.
            reason = why_apart(replace(members[0], windows=windows_of(members)), request)
            if reason is None:
                group.append(index)
                break
            obstacles.append(reason)
        else:
            groups.append([index])
            reasons.append(obstacles)
    return Grouping(groups, reasons)


def windows_of(requests: Sequence[PassRequest]) -> tuple[int, int] | None:
    """The windows of a pass with these requests; None if any will do."""
    return next((each.windows for each in requests if each.windows is not None), None)


def why_apart(first: PassRequest, second: PassRequest) -> str | None:
    """Why two tasks cannot share a pass, as a clause; None if they can. Raises ModelError."""
    if first.precision != second.precision:
        return f"precision {first.precision} there, {second.precision} here"
    if first.windows and second.windows and first.windows != second.windows:
        there, here = (
            f"windows of {longest} tokens with an overlap of {overlap}"
            for longest, overlap in (first.windows, second.windows)
        )
        return f"{there} there, {here} here"
    if isinstance(first.checkpoint, OnnxModel) or isinstance(second.checkpoint, OnnxModel):
        return "a model that is ONNX already runs by itself"
    difference = first_difference(first.checkpoint, second.checkpoint)
    return None if difference is None else f"{difference} differs"
