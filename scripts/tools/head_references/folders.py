"""Tiny checkpoints with heads for classes and vectors, on the encoders in tests/data/reference.

Head weights come from a seed, so only the outputs are kept. Needs no PyTorch.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from safetensors.numpy import load_file, save_file

from enricher.worker.records import Partition, RawRecord, Ticket, TokenizedArticle, TokenizedField
from enricher.worker.rules.windowing import WindowCutter
from tools.heads.pooling import write_pooling

if TYPE_CHECKING:
    from enricher.worker.records import Float32Array, Int32Array, Window

REFERENCE = Path(__file__).parents[3] / "tests" / "data" / "reference"
OUTPUTS = REFERENCE / "heads"
"""`FAMILY.npz`: what transformers says."""
FAMILIES = ("bert", "roberta", "xlm-roberta", "camembert", "electra", "distilbert")
HeadName = Literal["single", "multi", "mean", "cls"]
HEADS: tuple[HeadName, ...] = ("single", "multi", "mean", "cls")
"""Single-label and multi-label classification; vectors by the mean (normalised) and by the first token (as it is)."""
CLASSES = {"single": ("politics", "sport", "business", "science"), "multi": ("urgent", "local", "opinion")}
SEED = 20261123
BEFORE, AFTER = (2,), (3,)
"""Special tokens around a window."""
WINDOW_TOKENS, OVERLAP_TOKENS = 64, 16
ARTICLES_TOKENS = {1: 50, 3: 150, 40: 1850}
"""Tokens of an article, by the number of its windows."""
_NAMES = {
    "bert": "Bert",
    "roberta": "Roberta",
    "xlm-roberta": "XLMRoberta",
    "camembert": "Camembert",
    "electra": "Electra",
    "distilbert": "DistilBert",
}
_LAYERS = {"bert": ("bert.pooler.dense", "classifier"), "distilbert": ("pre_classifier", "classifier")}
"""The two layers of a head for classes; other families all call them alike."""


@dataclass(frozen=True, slots=True)
class Cut:
    """An article, cut into windows."""

    ids: Int32Array
    windows: list[Window]


def write_folder(family: str, head: HeadName, folder: Path) -> Path:
    """A checkpoint as transformers and sentence-transformers save it; vectors by the mean have no prefix in their names."""
    folder.mkdir(parents=True)
    config = json.loads((REFERENCE / family / "config.json").read_text())
    weights = {
        name: value
        for name, value in load_file(REFERENCE / family / "model.safetensors").items()
        if not name.startswith("classifier.")
    }
    for key in ("id2label", "label2id"):
        config.pop(key, None)
    if labels := CLASSES.get(head):
        kind = "single_label_classification" if head == "single" else "multi_label_classification"
        config |= {"id2label": {str(number): name for number, name in enumerate(labels)}, "problem_type": kind}
        config |= {"label2id": {name: number for number, name in enumerate(labels)}}
        weights |= _class_weights(family, head, len(labels), config.get("hidden_size") or config["dim"])
    elif head == "mean":
        weights = {name.partition(".")[2]: value for name, value in weights.items()}
    config["architectures"] = [_NAMES[family] + ("ForSequenceClassification" if labels else "Model")]
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    if not labels:
        mode: Literal["mean_tokens", "cls_token"] = "mean_tokens" if head == "mean" else "cls_token"
        write_pooling(folder, config.get("hidden_size") or config["dim"], mode, normalised=head == "mean")
    return folder


def articles() -> dict[int, Cut]:
    """Texts by the number of their windows; the same for every family."""
    random = np.random.default_rng(SEED)
    cutter = WindowCutter(WINDOW_TOKENS, OVERLAP_TOKENS, BEFORE, AFTER)
    cuts = {}
    for count, tokens in ARTICLES_TOKENS.items():
        ids = (5 + random.random(tokens) * 250).astype(np.int32)
        ticket = Ticket(RawRecord(Partition("articles", 0), count, None, None), arrived_s=0.0)
        windows = cutter.cut(ticket, TokenizedArticle((TokenizedField("body", ids, _NoSpans()),)), 0.0)
        assert count == len(windows)
        cuts[count] = Cut(ids, windows)
    return cuts


def _class_weights(family: str, head: str, labels: int, width: int) -> dict[str, Float32Array]:
    dense, output = _LAYERS.get(family, ("classifier.dense", "classifier.out_proj"))
    random = np.random.default_rng([SEED, zlib.crc32(f"{family} {head}".encode())])
    shapes = {
        f"{dense}.weight": (width, width),
        f"{dense}.bias": (width,),
        f"{output}.weight": (labels, width),
        f"{output}.bias": (labels,),
    }
    # Only `random`, whose numbers are the same in every release of numpy.
    return {name: ((random.random(shape) - 0.5) / 2).astype(np.float32) for name, shape in shapes.items()}


class _NoSpans:
    """Positions in a text that nobody asks for."""

    def chars_of(self, token: int) -> tuple[int, int]:
        raise NotImplementedError(token)
