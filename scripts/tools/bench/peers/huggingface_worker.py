"""Peer (c): a worker that runs the Hugging Face token-classification pipeline in its own process, on PyTorch.

    python -m tools.bench.peers.huggingface_worker FOLDER WINDOW_TOKENS OVERLAP_TOKENS DEVICE DTYPE

Options of an order: `batch_size` in windows, as the pipeline defines it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch  # type: ignore[import-not-found]  # not in this project's environment: interpreter.py
from transformers import AutoModelForTokenClassification, AutoTokenizer, pipeline

from tools.bench.peers.orders import Options, obey
from tools.bench.peers.records import Article, Found, Span, encode, model_card, text_of
from tools.bench.peers.transfer import Enrich


def main(folder: Path, window_tokens: int, overlap_tokens: int, device: str, dtype: str) -> None:
    ner = pipeline(
        "token-classification",
        model=AutoModelForTokenClassification.from_pretrained(folder, dtype=getattr(torch, dtype)),
        # The pipeline cuts a text into windows of this length, which overlap by `stride` tokens.
        tokenizer=AutoTokenizer.from_pretrained(folder, model_max_length=window_tokens),
        stride=overlap_tokens,
        aggregation_strategy="first",
        device=device,
    )
    card = model_card(folder / "model.safetensors", dtype)

    def make(options: Options) -> Enrich:
        def enrich(articles: list[Article]) -> list[bytes]:
            answers = ner([text_of(article) for article in articles], batch_size=options["batch_size"])
            return [encode(article, _findings(answer), card) for article, answer in zip(articles, answers, strict=True)]

        return enrich

    obey(make)


def _findings(answer: list[dict[str, Any]]) -> Found:
    """Convert the answer; the pipeline does not report numbers of tokens and windows."""
    spans = [Span(each["start"], each["end"], each["entity_group"], float(each["score"])) for each in answer]
    return Found(spans, {"truncated": False})


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], sys.argv[5])
