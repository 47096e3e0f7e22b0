"""Texts to overlapping windows to spans, with the `tokenizers` library, for peers that call the model themselves."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from tokenizers import Encoding, Tokenizer

from tools.bench.peers.records import Span

Array = npt.NDArray[Any]
_WINDOWS = 4
"""A text of so many windows shows whether the library returns them all."""


class Windows:
    """Cuts texts into windows of `window_tokens` that share `overlap_tokens`, and merges the windows' entities."""

    def __init__(self, folder: Path, labels: Sequence[str], *, window_tokens: int, overlap_tokens: int) -> None:
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.enable_truncation(window_tokens, stride=overlap_tokens)
        self._tokenizer.no_padding()
        self._labels = labels
        self._overlap_tokens = overlap_tokens
        if len(self.of(["word " * window_tokens * _WINDOWS])[0]) < _WINDOWS:
            raise RuntimeError(
                f"tokenizers {version('tokenizers')} loses windows of long texts; 0.23.3 does not: install that"
            )

    def of(self, texts: Sequence[str]) -> list[list[Encoding]]:
        """The windows of each text. The library tokenises several texts in parallel."""
        return [[first, *first.overflowing] for first in self._tokenizer.encode_batch(list(texts))]

    def coverage(self, windows: Sequence[Encoding]) -> dict[str, Any]:
        """The coverage that these windows of one text have."""
        specials = 2 * len(windows)
        repeated = self._overlap_tokens * (len(windows) - 1)
        tokens = sum(len(window.ids) for window in windows) - specials - repeated
        return {"tokens": tokens, "windows": len(windows), "truncated": False}

    def spans(self, windows: Sequence[Encoding], labels: Sequence[Array], scores: Sequence[Array]) -> list[Span]:
        """The entities of one text; `labels` and `scores` have shape `[length]` for each window."""
        owned = [self.owned(window, index, len(windows)) for index, window in enumerate(windows)]
        return self._decode(
            np.concatenate([np.array(window.word_ids[own]) for window, own in zip(windows, owned, strict=True)]),
            np.concatenate([np.array(window.offsets[own]) for window, own in zip(windows, owned, strict=True)]),
            np.concatenate([each[own] for each, own in zip(labels, owned, strict=True)]),
            np.concatenate([each[own] for each, own in zip(scores, owned, strict=True)]),
        )

    def owned(self, window: Encoding, index: int, count: int) -> slice:
        """The tokens that this window decides: no special ones, and of each overlap the half away from the window's edge."""
        half = self._overlap_tokens // 2
        first = 1 + (half if index else 0)
        left_out = self._overlap_tokens - half if index < count - 1 else 0
        return slice(first, len(window.ids) - 1 - left_out)

    def _decode(self, words: Array, offsets: Array, labels: Array, scores: Array) -> list[Span]:
        """A word's first token decides its label; `I-` continues an entity of its kind that ends just before."""
        first = np.flatnonzero(np.diff(words, prepend=-1))
        last = np.append(first[1:], len(words)) - 1
        runs: list[tuple[str, list[int]]] = []
        for word in np.flatnonzero(labels[first]).tolist():
            prefix, _, kind = self._labels[labels[first[word]]].partition("-")
            if prefix == "I" and runs and runs[-1][0] == kind and runs[-1][1][-1] == word - 1:
                runs[-1][1].append(word)
            else:
                runs.append((kind, [word]))
        return [
            Span(int(offsets[first[run[0]], 0]), int(offsets[last[run[-1]], 1]), kind, float(scores[first[run]].mean()))
            for kind, run in runs
        ]
