"""A token-classification model on ONNX Runtime's stock provider: logits from the runtime, the rest in numpy."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

from tools.bench.peers.window_model import WindowModel
from tools.bench.peers.windows import Array


class OnnxModel(WindowModel):
    """Runs of `threads` threads each, `callers` at once, on `cpu` or `cuda:N`."""

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
        odds = np.exp(logits - logits.max(-1, keepdims=True))
        return logits.argmax(-1), odds.max(-1) / odds.sum(-1)


def _providers(device: str) -> list[Any]:
    kind, _, index = device.partition(":")
    if kind == "cpu":
        return ["CPUExecutionProvider"]
    ort.preload_dlls()
    return [("CUDAExecutionProvider", {"device_id": index})]
