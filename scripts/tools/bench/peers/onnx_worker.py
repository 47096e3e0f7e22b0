"""Peer (a): a worker that runs the model in its own process with ONNX Runtime.

    python -m tools.bench.peers.onnx_worker FOLDER WINDOW_TOKENS OVERLAP_TOKENS

Options of an order: `threads`, `callers`, and `windows_per_run` (null: one article per run).
"""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path

from tools.bench.peers.onnx_model import OnnxModel
from tools.bench.peers.orders import Options, obey
from tools.bench.peers.records import Article, encoded, model_card, text_of
from tools.bench.peers.transfer import Enrich


def main(folder: Path, window_tokens: int, overlap_tokens: int) -> None:
    """Execute orders until standard input ends."""
    card = model_card(folder / "model.onnx", "fp32")

    @cache
    def model(threads: int, callers: int) -> OnnxModel:
        return OnnxModel(
            folder, window_tokens=window_tokens, overlap_tokens=overlap_tokens, threads=threads, callers=callers
        )

    def make(options: Options) -> Enrich:
        chosen = model(options["threads"], options["callers"])

        def enrich(articles: list[Article]) -> list[bytes]:
            found = chosen.find([text_of(article) for article in articles], options["windows_per_run"])
            return [encoded(article, each, card) for article, each in zip(articles, found, strict=True)]

        return enrich

    obey(make)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
