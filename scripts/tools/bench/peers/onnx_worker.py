"""Peer (a): a worker that runs the model in its own process with ONNX Runtime.

    python -m tools.bench.peers.onnx_worker FOLDER WINDOW_TOKENS OVERLAP_TOKENS DEVICE

Options of an order: `threads`, `callers`, and `windows_per_run` (null: one article per run).
"""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path

from tools.bench.peers.onnx_model import OnnxModel
from tools.bench.peers.orders import Options, obey
from tools.bench.peers.records import model_card
from tools.bench.peers.transfer import Enrich


def main(folder: Path, window_tokens: int, overlap_tokens: int, device: str) -> None:
    card = model_card(folder / "model.onnx", "fp32")

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
