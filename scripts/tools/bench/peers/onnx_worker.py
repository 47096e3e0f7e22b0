"""Peer (a): a worker that runs the model in its own process with ONNX Runtime's stock provider.

    python -m tools.bench.peers.onnx_worker FOLDER WINDOW_TOKENS OVERLAP_TOKENS DEVICE

Options of an order: `threads`, `callers`, and `windows_per_run` (null: one article per run).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

from tools.bench.peers.records import model_card
from tools.bench.peers.transfer import Enrich, Options, obey
from tools.bench.peers.window_model import Array, WindowModel


class OnnxModel(WindowModel):
    """Logits from the runtime, the rest in numpy. Runs of `threads` threads each, `callers` at once; `cpu` or `cuda:N`."""

    def __init__(
        self,
        folder: Path,
        *,
        window_tokens: int,
        overlap_tokens: int,
        threads: int,
        callers: int = 1,
        device: str = "cpu",
    ) -> None:
        super().__init__(folder, window_tokens=window_tokens, overlap_tokens=overlap_tokens, callers=callers)
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        self._session = ort.InferenceSession(folder / "model.onnx", options, providers=_providers(device))
        self._inputs = [each.name for each in self._session.get_inputs()]

    def label(self, feeds: Mapping[str, Array]) -> tuple[Array, Array]:
        (logits,) = self._session.run(["logits"], {name: feeds[name] for name in self._inputs})
        logits = logits.astype(np.float32)
        odds = np.exp(logits - logits.max(-1, keepdims=True))
        return logits.argmax(-1), odds.max(-1) / odds.sum(-1)


def _providers(device: str) -> list[Any]:
    kind, _, index = device.partition(":")
    if kind == "cpu":
        return ["CPUExecutionProvider"]
    ort.preload_dlls()
    return [("CUDAExecutionProvider", {"device_id": index})]


def main(folder: Path, window_tokens: int, overlap_tokens: int, device: str) -> None:
    card = model_card(folder / "model.onnx", "as exported")

    @cache
    def model(threads: int, callers: int) -> OnnxModel:
        return OnnxModel(
            folder, window_tokens=window_tokens, overlap_tokens=overlap_tokens, threads=threads, callers=callers,
            device=device,
        )  # fmt: skip

    def make(options: Options) -> Enrich:
        return model(options["threads"], options["callers"]).enrich(options["windows_per_run"], card)

    obey(make)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
