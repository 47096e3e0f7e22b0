"""Peer (d): a worker that runs the model in its own process on PyTorch, as TorchScript or through `torch.compile`.

    python -m tools.bench.peers.torch_worker FOLDER WINDOW_TOKENS OVERLAP_TOKENS DEVICE DTYPE KIND SCRATCH

KIND: `scripted` is traced and frozen; `compiled` is compiled once for all shapes, into the folder SCRATCH. Options of an
order: `threads`, `callers`, and `windows_per_run` (null: one article per run).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch  # type: ignore[import-not-found]  # not in this project's environment: interpreter.py
from transformers import AutoModelForTokenClassification

from tools.bench.peers.orders import Options, obey
from tools.bench.peers.records import model_card
from tools.bench.peers.transfer import Enrich
from tools.bench.peers.window_model import WindowModel
from tools.bench.peers.windows import Array

_Function = Callable[..., tuple[Any, Any]]
"""From ids and mask to labels and scores, all tensors `[batch, length]`."""
_EXAMPLE = (2, 16)
"""Batch and length of what is traced. The trace works for all others."""


class _Labels(torch.nn.Module):  # type: ignore[misc]  # torch is not here when types are checked
    """The checkpoint as a function of tensors to tensors, which a trace can hold."""

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


def load(folder: Path, device: str, dtype: str, kind: str) -> _Function:
    """The checkpoint as TorchScript, or to be compiled at its first call."""
    labels = _Labels(folder, dtype).to(device).eval()
    if kind == "compiled":
        return torch.compile(labels, dynamic=True)  # type: ignore[no-any-return]  # as above
    example = torch.ones(_EXAMPLE, dtype=torch.int64, device=device)
    with torch.inference_mode():
        return torch.jit.freeze(torch.jit.trace(labels, (example, example), check_trace=False))  # type: ignore[no-any-return]


def main(folder: Path, windows: tuple[int, int], device: str, dtype: str, kind: str, scratch: str) -> None:
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = scratch
    card, labels = model_card(folder / "model.safetensors", dtype), load(folder, device, dtype, kind)

    @cache
    def model(threads: int, callers: int) -> TorchModel:
        return TorchModel(folder, labels, device, windows, threads=threads, callers=callers)

    def make(options: Options) -> Enrich:
        return model(options["threads"], options["callers"]).enrich(options["windows_per_run"], card)

    obey(make)


if __name__ == "__main__":
    main(Path(sys.argv[1]), (int(sys.argv[2]), int(sys.argv[3])), *sys.argv[4:8])
