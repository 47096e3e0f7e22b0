"""A token-classification model on ONNX Runtime's stock provider: padded batches in, logits out, the rest in numpy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnxruntime as ort
import orjson
from tokenizers import Encoding

from tools.bench.peers.records import Found
from tools.bench.peers.windows import Array, Windows


class OnnxModel:
    """Finds the entities of texts, with `callers` concurrent runs of `threads` threads each."""

    def __init__(
        self, folder: Path, *, window_tokens: int, overlap_tokens: int, threads: int, callers: int = 1
    ) -> None:
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        self._session = ort.InferenceSession(folder / "model.onnx", options, providers=["CPUExecutionProvider"])
        self._inputs = {each.name for each in self._session.get_inputs()}
        names = orjson.loads((folder / "config.json").read_bytes())["id2label"]
        labels = [names[str(index)] for index in range(len(names))]
        self._windows = Windows(folder, labels, window_tokens=window_tokens, overlap_tokens=overlap_tokens)
        self._pool = ThreadPoolExecutor(callers)

    def find(self, texts: Sequence[str], windows_per_run: int | None = None) -> list[Found]:
        """The entities of each text. Runs take `windows_per_run` windows in order; None: one run per text."""
        by_text = self._windows.of(texts)
        batches = by_text if windows_per_run is None else _in_batches(by_text, windows_per_run)
        results = (row for rows in self._pool.map(self._run, batches) for row in rows)
        return [self._found(windows, [next(results) for _ in windows]) for windows in by_text]

    def _run(self, windows: Sequence[Encoding]) -> list[tuple[Array, Array]]:
        """Labels and scores of each window, shape `[length]`."""
        shape = len(windows), max(len(window.ids) for window in windows)
        feeds: dict[str, Array] = {
            name: np.zeros(shape, np.int64) for name in ("input_ids", "attention_mask", "token_type_ids")
        }
        for row, window in enumerate(windows):
            feeds["input_ids"][row, : len(window.ids)] = window.ids
            feeds["attention_mask"][row, : len(window.ids)] = 1
        (logits,) = self._session.run(["logits"], {name: feeds[name] for name in self._inputs})
        odds = np.exp(logits - logits.max(-1, keepdims=True))
        scores = odds.max(-1) / odds.sum(-1)
        return list(zip(logits.argmax(-1), scores, strict=True))

    def _found(self, windows: Sequence[Encoding], results: Sequence[tuple[Array, Array]]) -> Found:
        spans = self._windows.spans(windows, [labels for labels, _ in results], [scores for _, scores in results])
        return Found(spans, self._windows.coverage(windows))


def _in_batches(by_text: Sequence[Sequence[Encoding]], size: int) -> Iterator[list[Encoding]]:
    windows = [window for windows in by_text for window in windows]
    return (windows[start : start + size] for start in range(0, len(windows), size))
