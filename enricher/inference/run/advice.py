"""What is known to suit a model, from `enricher.json` in its folder. Settings win over it; without one there are defaults.

It changes how articles are cut and gathered, not what the model computes, so it is no part of the model's digest.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

from enricher.errors import ModelError

if TYPE_CHECKING:
    from enricher.inference.run.tuning import Tuning

ADVICE_FILE = "enricher.json"


@dataclass(frozen=True, slots=True)
class Advice:
    """Measured for this model, each as the setting of that name. None: no advice, the worker's own default counts."""

    max_window_tokens: int = 256
    """Special tokens included."""
    overlap_tokens: int = 64
    max_batch_tokens: int | None = None
    """With the next three, what a tuning found (`tuning.py`), or the model's maker knows."""
    concurrency: int | None = None
    bucket_edges: tuple[int, ...] | None = None
    run_overhead_tokens: int | None = None

    def tuned(self, tuning: Tuning) -> Advice:
        """This advice with what was measured on such a machine as this one."""
        return replace(
            self,
            max_batch_tokens=tuning.max_batch_tokens,
            concurrency=tuning.concurrency,
            bucket_edges=tuning.bucket_edges,
            run_overhead_tokens=tuning.run_overhead_tokens,
        )


def advice_for(folder: Path, most_window_tokens: int) -> Advice:
    """The folder's advice, else defaults, never above what the model takes. Raises ModelError for a malformed file."""
    path = folder / ADVICE_FILE
    try:
        values = orjson.loads(path.read_bytes()) if path.is_file() else {}
        advice = Advice(**values)
    except (orjson.JSONDecodeError, TypeError) as error:
        known = ", ".join(field.name for field in fields(Advice))
        message = f"{path}: expected a JSON object with {known}"
        raise ModelError(message) from error
    edges = None if advice.bucket_edges is None else _edges(path, advice.bucket_edges)
    counts = (advice.max_batch_tokens, advice.concurrency)
    sizes = [advice.max_window_tokens, *(each for each in counts if each is not None)]
    may_be_zero = [advice.overlap_tokens, advice.run_overhead_tokens or 0]
    whole = all(type(value) is int for value in (*sizes, *may_be_zero))
    if not whole or min(sizes) < 1 or min(may_be_zero) < 0:
        message = f"{path}: all values are whole numbers"
        raise ModelError(message)
    longest = min(advice.max_window_tokens, most_window_tokens)
    # What nobody chose suits the windows there are: with short ones the default would be more than half of each.
    overlap = advice.overlap_tokens if "overlap_tokens" in values else min(advice.overlap_tokens, longest // 4)
    return replace(advice, max_window_tokens=longest, overlap_tokens=overlap, bucket_edges=edges)


def _edges(path: Path, value: object) -> tuple[int, ...]:
    edges = value if isinstance(value, list) else []
    if not edges or not all(type(edge) is int and edge > 0 for edge in edges) or edges != sorted(set(edges)):
        message = f"{path}: bucket_edges is a list of whole numbers that grow"
        raise ModelError(message)
    return tuple(edges)
