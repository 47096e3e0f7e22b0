"""Tiny checkpoints with heads, on the encoders in tests/data/reference, and what transformers says of them.

Tests make the same checkpoints, since head weights come from a seed, and compare the graphs with the arrays. Only writing
those needs PyTorch, which our environment lacks: with a Python that has torch, transformers and safetensors,

    PYTHONPATH=.:scripts:tests torch-env/bin/python -m support.head_references [FAMILY...]
"""

from __future__ import annotations

import importlib
import json
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from safetensors.numpy import load_file, save_file

from enricher.worker.records import (
    Float32Array,
    Int32Array,
    Partition,
    RawRecord,
    Ticket,
    TokenizedArticle,
    TokenizedField,
    Window,
)
from enricher.worker.rules.windowing import WindowCutter
from tools import ROOT

REFERENCE = ROOT / "tests" / "data" / "reference"
OUTPUTS = REFERENCE / "heads"
"""`FAMILY.npz`: what transformers says, one window at a time, in float32. `ragged.HEAD [8, values]`: a row for each window
of `reference.npz`. `windows.HEAD [44, values]` and `articles.HEAD [3, values]`: articles of 1, 3 and 40 windows, where an
article's row is the mean over its tokens, each as the window that owns it says."""
FAMILIES = ("bert", "roberta", "xlm-roberta", "camembert", "electra", "distilbert", "modernbert", "deberta-v2")
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
_MODES = ("cls_token", "mean_tokens", "max_tokens", "lasttoken")
_NAMES = {
    "bert": "Bert",
    "roberta": "Roberta",
    "xlm-roberta": "XLMRoberta",
    "camembert": "Camembert",
    "electra": "Electra",
    "distilbert": "DistilBert",
    "modernbert": "ModernBert",
    "deberta-v2": "DebertaV2",
}
_LAYERS = {
    "bert": ("bert.pooler.dense", "classifier"),
    "distilbert": ("pre_classifier", "classifier"),
    "modernbert": ("head.dense", "classifier"),
    "deberta-v2": ("pooler.dense", "classifier"),
}
"""The two layers of a head for classes; other families all call them alike. ModernBERT's has a norm, and one bias."""


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
        if not name.startswith(("classifier.", "head."))
    }
    for key in ("id2label", "label2id"):
        config.pop(key, None)
    if labels := CLASSES.get(head):
        kind = "single_label_classification" if head == "single" else "multi_label_classification"
        config |= {"id2label": {str(number): name for number, name in enumerate(labels)}, "problem_type": kind}
        config |= {"label2id": {name: number for number, name in enumerate(labels)}}
        if family == "modernbert":
            config["classifier_pooling"] = "cls" if head == "single" else "mean"
        weights |= _class_weights(family, head, len(labels), config.get("hidden_size") or config["dim"])
    elif head == "mean":
        weights = {name.partition(".")[2]: value for name, value in weights.items()}
    config["architectures"] = [_NAMES[family] + ("ForSequenceClassification" if labels else "Model")]
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    if not labels:
        mode = "mean_tokens" if head == "mean" else "cls_token"
        write_pooling(folder, config.get("hidden_size") or config["dim"], mode, normalised=head == "mean")
    return folder


def write_pooling(folder: Path, width: int, mode: str, *, normalised: bool) -> None:
    """Write `modules.json` and `1_Pooling/config.json`. `width`: numbers of a vector."""
    (folder / "1_Pooling").mkdir()
    modes = {f"pooling_mode_{each}": each == mode for each in _MODES}
    pooling = {"word_embedding_dimension": width, **modes, "include_prompt": True}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling, indent=1))
    kinds = {"Transformer": "", "Pooling": "1_Pooling", **({"Normalize": "2_Normalize"} if normalised else {})}
    modules = [
        {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for number, (kind, path) in enumerate(kinds.items())
    ]
    (folder / "modules.json").write_text(json.dumps(modules, indent=1))


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
    if family == "modernbert":
        del shapes[f"{dense}.bias"]
        shapes["head.norm.weight"] = (width,)
    # Only `random`, whose numbers are the same in every release of numpy.
    return {name: ((random.random(shape) - 0.5) / 2).astype(np.float32) for name, shape in shapes.items()}


class _NoSpans:
    """Positions in a text that nobody asks for."""

    def chars_of(self, token: int) -> tuple[int, int]:
        raise NotImplementedError(token)


Row = Any
"""float64 [values]"""


def main() -> None:
    """Write `FAMILY.npz` for each family: `ragged.HEAD`, `windows.HEAD` and `articles.HEAD`, `float32 [.., values]`."""
    OUTPUTS.mkdir(exist_ok=True)
    for family in sys.argv[1:] or FAMILIES:
        arrays: dict[str, Any] = {}
        with tempfile.TemporaryDirectory() as scratch:
            for head in HEADS:
                arrays |= _outputs(family, head, write_folder(family, head, Path(scratch) / head))
        np.savez_compressed(
            OUTPUTS / f"{family}.npz", **{key: value.astype(np.float32) for key, value in arrays.items()}
        )
        print(family, {key: value.shape for key, value in arrays.items()})


def _outputs(family: str, head: HeadName, folder: Path) -> dict[str, Any]:
    run = runner(folder, "AutoModelForSequenceClassification" if head in CLASSES else "AutoModel")
    reference = np.load(REFERENCE / family / "reference.npz")
    ragged = [ids[:length] for ids, length in zip(reference["input_ids"], reference["lengths"], strict=True)]
    cuts = articles()
    per_article = {count: [run(window.ids) for window in cut.windows] for count, cut in cuts.items()}
    by_window = [
        _row(head, values, window.owned_tokens(0))
        for count, cut in cuts.items()
        for window, values in zip(cut.windows, per_article[count], strict=True)
    ]
    return {
        f"ragged.{head}": np.stack([_row(head, run(ids), slice(1, len(ids) - 1)) for ids in ragged]),
        f"windows.{head}": np.stack(by_window),
        f"articles.{head}": np.stack([_article(head, cut, per_article[count]) for count, cut in cuts.items()]),
    }


def runner(folder: Path, name: str) -> Callable[[Any], Any]:
    """Ids -> logits `[values]`, or last hidden states `[tokens, width]`, in float64. `name`: a class of transformers."""
    torch: Any = importlib.import_module("torch")
    transformers: Any = importlib.import_module("transformers")
    kind = getattr(transformers, name)
    model, info = kind.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
    )
    missing = [key for key in info["missing_keys"] if "pooler" not in key or name != "AutoModel"]
    assert not missing, f"{folder}: transformers knows other weights: {missing}"
    assert not info["unexpected_keys"], f"{folder}: transformers does not know {info['unexpected_keys']}"
    model.eval()

    def run(ids: Any) -> Any:  # noqa: ANN401  an array or a tensor
        with torch.no_grad():
            said = model(torch.tensor(np.asarray(ids, np.int64)[None]))
        values = said.last_hidden_state if name == "AutoModel" else said.logits
        return values[0].numpy().astype(np.float64)

    return run


def _row(head: HeadName, values: Row, owned: slice) -> Row:
    """A window's row."""
    if head in CLASSES:
        return values
    if head == "cls":
        return values[0]
    return values[owned].mean(axis=0) if owned.stop > owned.start else np.zeros(values.shape[1])


def _article(head: HeadName, cut: Cut, per_window: Sequence[Row]) -> Row:
    """The article's row, token by token: each takes what the window that owns it says, and all tokens count alike."""
    taken = list(_by_token(head, cut, per_window))
    assert len(taken) == len(cut.ids)
    return np.mean(taken, axis=0)


def _by_token(head: HeadName, cut: Cut, per_window: Sequence[Row]) -> Iterator[Row]:
    for window, values in zip(cut.windows, per_window, strict=True):
        owned = window.owned_tokens(0)
        for place in range(owned.start, owned.stop):
            yield values[place] if head == "mean" else _row(head, values, owned)


if __name__ == "__main__":
    main()
