"""The windows and batches that suit a model, from `enricher.json` in its folder. Settings override it.

Advice changes how articles are cut and batched, not what the model computes, so it is not part of the model's digest.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

from enricher.errors import ModelError, SettingsError
from enricher.worker.rules.windowing import WindowCutter

if TYPE_CHECKING:
    from enricher.worker.inference.run.tuning import Tuning
    from enricher.worker.inference.tokenizer.articles import ArticleTokenizer

ADVICE_FILE = "enricher.json"
MAX_EARLY_OVERHEAD = 10
"""The bound that the settings have too."""


@dataclass(frozen=True, slots=True)
class Advice:
    """Each field is the default of the setting with the same name. None: the worker's own default applies."""

    max_window_tokens: int = 256
    """Special tokens included."""
    overlap_tokens: int = 64
    max_batch_tokens: int | None = None
    """This field and the next four come from a tuning (tuning.py) or from the model's author."""
    concurrency: int | None = None
    bucket_edges: tuple[int, ...] | None = None
    run_overhead_tokens: int | None = None
    early_overhead: float | None = None

    def with_tuning(self, tuning: Tuning) -> Advice:
        """This advice, with what was measured on this kind of machine."""
        return replace(
            self,
            max_batch_tokens=tuning.max_batch_tokens,
            concurrency=tuning.concurrency,
            bucket_edges=tuning.bucket_edges,
            run_overhead_tokens=tuning.run_overhead_tokens,
            early_overhead=self.early_overhead if tuning.early_overhead is None else tuning.early_overhead,
        )


def advice_for(folder: Path, most_window_tokens: int) -> Advice:
    """The folder's advice, else defaults; windows never exceed what the model takes. Raises ModelError if malformed."""
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
        message = f"{path}: all values are whole numbers, except early_overhead"
        raise ModelError(message)
    early = advice.early_overhead
    if early is not None and (type(early) not in (int, float) or not 0 <= early <= MAX_EARLY_OVERHEAD):
        message = f"{path}: early_overhead is a number from 0 to {MAX_EARLY_OVERHEAD}"
        raise ModelError(message)
    longest = min(advice.max_window_tokens, most_window_tokens)
    # The default overlap would be more than half of a short window, so it shrinks with it; a chosen overlap is kept.
    overlap = advice.overlap_tokens if "overlap_tokens" in values else min(advice.overlap_tokens, longest // 4)
    return replace(advice, max_window_tokens=longest, overlap_tokens=overlap, bucket_edges=edges)


def cutter_for(tokenizer: ArticleTokenizer, window_tokens: int, overlap_tokens: int) -> WindowCutter:
    """How the model's windows are cut: for the worker and for the quality gate alike.

    Raises SettingsError if the model cannot have such windows.
    """
    if window_tokens > tokenizer.max_window_tokens:
        raise SettingsError(
            f"batching.max_window_tokens is {window_tokens}, but the model takes {tokenizer.max_window_tokens} at most"
        )
    cutter = WindowCutter(window_tokens, overlap_tokens, tokenizer.specials_before, tokenizer.specials_after)
    if cutter.content_tokens < 1:
        raise SettingsError(
            f"a window of {window_tokens} tokens holds no text beside its special tokens: allow more tokens in the "
            f"settings, in {ADVICE_FILE} or in the model"
        )
    if overlap_tokens > cutter.content_tokens // 2:
        raise SettingsError(
            f"batching.overlap_tokens is {overlap_tokens}, more than half of a window of {window_tokens} tokens: decrease "
            f"it in the settings, there or in the task, or in {ADVICE_FILE}"
        )
    return cutter


def default_cutter(folder: Path, tokenizer: ArticleTokenizer) -> WindowCutter:
    """How a worker cuts the windows of the model in a folder, unless its settings say otherwise. Raises as `cutter_for`."""
    advice = advice_for(folder, tokenizer.max_window_tokens)
    return cutter_for(tokenizer, advice.max_window_tokens, advice.overlap_tokens)


def _edges(path: Path, value: object) -> tuple[int, ...]:
    edges = value if isinstance(value, list) else []
    if not edges or not all(type(edge) is int and edge > 0 for edge in edges) or edges != sorted(set(edges)):
        message = f"{path}: bucket_edges is a list of increasing whole numbers"
        raise ModelError(message)
    return tuple(edges)
