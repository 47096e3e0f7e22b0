"""Texts to overlapping windows to spans, with the `tokenizers` library, for peers that call the model themselves."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
from tokenizers import Encoding, Tokenizer

from tools.bench.peers.records import Article, Found, Span, encode, text_of
from tools.bench.peers.transfer import Enrich

Array = npt.NDArray[Any]
_WINDOWS = 4
"""A text of so many windows shows whether the library returns them all."""
TOKENIZERS = "0.23.3"
"""The version that the worker is locked to, which returns them."""


class Windows:
    """Cuts texts into windows of `window_tokens` that share `overlap_tokens`, and merges the windows' entities.

    Raises SystemExit with a version of the library that loses windows, such as 0.23.2.
    """

    def __init__(self, folder: Path, labels: Sequence[str], *, window_tokens: int, overlap_tokens: int) -> None:
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.enable_truncation(window_tokens, stride=overlap_tokens)
        self._tokenizer.no_padding()
        self._labels = labels
        self._overlap_tokens = overlap_tokens
        if len(self.of(["word " * window_tokens * _WINDOWS])[0]) < _WINDOWS:
            raise SystemExit(
                f"tokenizers {version('tokenizers')} of {sys.executable} loses windows of long texts, and {TOKENIZERS} does "
                f"not: {sys.executable} -m pip install tokenizers=={TOKENIZERS}"
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


class WindowModel(ABC):
    """Finds the entities of texts, with `callers` concurrent runs, in threads of which each first calls `begin`."""

    def __init__(
        self,
        folder: Path,
        *,
        window_tokens: int,
        overlap_tokens: int,
        callers: int = 1,
        begin: Callable[[], None] | None = None,
    ) -> None:
        names = orjson.loads((folder / "config.json").read_bytes())["id2label"]
        labels = [names[str(index)] for index in range(len(names))]
        self._windows = Windows(folder, labels, window_tokens=window_tokens, overlap_tokens=overlap_tokens)
        self._pool = ThreadPoolExecutor(callers, initializer=begin)

    @abstractmethod
    def label(self, feeds: Mapping[str, Array]) -> tuple[Array, Array]:
        """Labels and scores, both `[batch, length]`, from int64 arrays of that shape: ids, mask and token types."""

    def find(self, texts: Sequence[str], windows_per_run: int | None = None) -> list[Found]:
        """The entities of each text. Runs take `windows_per_run` windows in order; None: one run per text."""
        by_text = self._windows.of(texts)
        batches = by_text if windows_per_run is None else _in_batches(by_text, windows_per_run)
        results = (row for rows in self._pool.map(self._run, batches) for row in rows)
        return [self._findings(windows, [next(results) for _ in windows]) for windows in by_text]

    def enrich(self, windows_per_run: int | None, card: Mapping[str, str]) -> Enrich:
        """The function that makes records of articles."""

        def enrich(articles: list[Article]) -> list[bytes]:
            found = self.find([text_of(article) for article in articles], windows_per_run)
            return [encode(article, each, card) for article, each in zip(articles, found, strict=True)]

        return enrich

    def _run(self, windows: Sequence[Encoding]) -> list[tuple[Array, Array]]:
        """Labels and scores of each window, shape `[length]`."""
        shape = len(windows), max(len(window.ids) for window in windows)
        feeds: dict[str, Array] = {
            name: np.zeros(shape, np.int64) for name in ("input_ids", "attention_mask", "token_type_ids")
        }
        for row, window in enumerate(windows):
            feeds["input_ids"][row, : len(window.ids)] = window.ids
            feeds["attention_mask"][row, : len(window.ids)] = 1
        labels, scores = self.label(feeds)
        return list(zip(labels, scores, strict=True))

    def _findings(self, windows: Sequence[Encoding], results: Sequence[tuple[Array, Array]]) -> Found:
        spans = self._windows.spans(windows, [labels for labels, _ in results], [scores for _, scores in results])
        return Found(spans, self._windows.coverage(windows))


def _in_batches(by_text: Sequence[Sequence[Encoding]], size: int) -> Iterator[list[Encoding]]:
    windows = [window for windows in by_text for window in windows]
    return (windows[start : start + size] for start in range(0, len(windows), size))
