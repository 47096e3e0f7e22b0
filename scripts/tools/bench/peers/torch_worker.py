"""Peers (c) and (d): a worker that runs the model in its own process on PyTorch.

    python -m tools.bench.peers.torch_worker FOLDER WINDOW_TOKENS OVERLAP_TOKENS DEVICE DTYPE KIND SCRATCH

KIND: `pipeline` is Hugging Face's for token classification, with the option `batch_size` in windows, as it defines it.
`compiled` is compiled once for all shapes, into the folder SCRATCH unless TORCHINDUCTOR_CACHE_DIR names another; options of
its orders are `threads`, `callers`, and `windows_per_run` (null: one article per run).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch  # type: ignore[import-not-found]  # not in this project's environment: line_up.py says where it is
from torch._dynamo.utils import counters  # type: ignore[import-not-found]  # as above
from transformers import AutoModelForTokenClassification, AutoTokenizer, pipeline

from tools.bench.peers.records import Article, Found, Span, encode, model_card, text_of
from tools.bench.peers.transfer import Enrich, Options, obey
from tools.bench.peers.window_model import Array, WindowModel, Windows

_Function = Callable[..., tuple[Any, Any]]
"""From ids and mask to labels and scores, all tensors `[batch, length]`."""


class _Labels(torch.nn.Module):  # type: ignore[misc]  # torch is not here when types are checked
    """The checkpoint as a function of tensors to tensors."""

    def __init__(self, folder: Path, dtype: str) -> None:
        super().__init__()
        self.model: Any = AutoModelForTokenClassification.from_pretrained(folder, dtype=getattr(torch, dtype))

    def forward(self, input_ids: Any, attention_mask: Any) -> tuple[Any, Any]:  # noqa: ANN401  torch's own
        """Labels and scores, both `[batch, length]`."""
        logits = self.model(input_ids=input_ids, attention_mask=attention_mask).logits.float()
        scores, labels = logits.softmax(-1).max(-1)
        return labels, scores


class TorchModel(WindowModel):
    """Runs of `threads` threads each, `callers` at once; PyTorch keeps a thread's number of threads."""

    def __init__(
        self, folder: Path, labels: _Function, device: str, windows: tuple[int, int], *, threads: int, callers: int
    ) -> None:
        window_tokens, overlap_tokens = windows
        super().__init__(
            folder, window_tokens=window_tokens, overlap_tokens=overlap_tokens, callers=callers,
            begin=partial(torch.set_num_threads, threads),
        )  # fmt: skip
        self._labels, self._device = labels, device

    def label(self, feeds: Mapping[str, Array]) -> tuple[Array, Array]:
        with torch.inference_mode():
            tensors = (torch.from_numpy(feeds[name]).to(self._device) for name in ("input_ids", "attention_mask"))
            labels, scores = self._labels(*tensors)
            return labels.cpu().numpy(), scores.cpu().numpy()


def run_compiled(folder: Path, windows: tuple[int, int], device: str, dtype: str) -> None:
    """Obey orders with batches of our own; the first call compiles."""
    card = model_card(folder / "model.safetensors", dtype)
    labels = torch.compile(_Labels(folder, dtype).to(device).eval(), dynamic=True)

    @cache
    def model(threads: int, callers: int) -> TorchModel:
        return TorchModel(folder, labels, device, windows, threads=threads, callers=callers)

    def make(options: Options) -> Enrich:
        return model(options["threads"], options["callers"]).enrich(options["windows_per_run"], card)

    obey(make, lambda: int(counters["stats"]["unique_graphs"]))


def run_pipeline(folder: Path, windows: tuple[int, int], device: str, dtype: str) -> None:
    """Obey orders with Hugging Face's pipeline."""
    window_tokens, overlap_tokens = windows
    Windows(folder, (), window_tokens=window_tokens, overlap_tokens=overlap_tokens)  # refuses a library that loses them
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


def main(folder: Path, windows: tuple[int, int], device: str, dtype: str, kind: str, scratch: str) -> None:
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", scratch)
    run = run_pipeline if kind == "pipeline" else run_compiled
    run(folder, windows, device, dtype)


if __name__ == "__main__":
    main(Path(sys.argv[1]), (int(sys.argv[2]), int(sys.argv[3])), *sys.argv[4:8])
