"""Finds entities with any model that labels padded batches of windows, for peers that call the model themselves."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import orjson
from tokenizers import Encoding

from tools.bench.peers.records import Article, Found, encode, text_of
from tools.bench.peers.transfer import Enrich
from tools.bench.peers.windows import Array, Windows


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
