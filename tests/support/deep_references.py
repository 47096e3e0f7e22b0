"""What the references of encoders beside BERT's share: weights and texts from a seed, folders, and transformers' answers.

A family has two kinds of checkpoint with random weights. The small one is stored whole, as those of BERT's families are. Of
the deep ones only the answers are stored: `float32 [tokens, 7]` for labels, one text after the other, and `[texts, values]`
for other heads. modernbert_references.py and deberta_references.py say which there are, and write them where PyTorch is.
"""

from __future__ import annotations

import importlib
import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from safetensors.numpy import save_file

from enricher.worker.records import Float32Array, Int32Array
from support.head_references import REFERENCE, runner, write_pooling

LABELS = ("O", "B-PER", "I-PER", "B-ORG", "I-ORG", "B-LOC", "I-LOC")
CLASSES = ("politics", "sport", "business")
SEED = 20261129
Kind = Literal["ForTokenClassification", "ForSequenceClassification", "Model"]


def kind_of(head: str) -> Kind:
    """The end of the class's name in transformers, for a family's head."""
    if head == "labels":
        return "ForTokenClassification"
    return "Model" if head in {"mean vector", "first vector"} else "ForSequenceClassification"


def texts_of(lengths_tokens: Sequence[int]) -> list[Int32Array]:
    """Ids of a text of each length."""
    random = np.random.default_rng(SEED)
    return [(5 + random.random(length) * 250).astype(np.int32) for length in lengths_tokens]


def seeded(name: str, shape: tuple[int, ...]) -> Float32Array:
    """Only `random`, whose numbers are the same in every release of numpy. Scores of attention spread by about 2."""
    random = np.random.default_rng([SEED, zlib.crc32(name.encode())])
    values: Float32Array = ((random.random(shape) - 0.5) * 4 / np.sqrt(shape[-1])).astype(np.float32)
    return values


def seeded_norm(name: str, width: int) -> Float32Array:
    """A layer norm's weight."""
    return 1 + seeded(name, (width,))


def label_keys(labels: Sequence[str]) -> dict[str, Any]:
    """The keys of config.json with the names of labels."""
    return {
        "id2label": dict(enumerate(labels)),
        "label2id": {name: number for number, name in enumerate(labels)},
    }


def write_folder(
    folder: Path,
    config: Mapping[str, Any],
    weights: Mapping[str, Float32Array],
    *,
    pooled: Literal["mean", "cls"] | None,
) -> Path:
    """A checkpoint as transformers and sentence-transformers save it. `pooled`: for vectors only."""
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    save_file(dict(weights), folder / "model.safetensors", metadata={"format": "pt"})
    if pooled:
        mode = {"mean": "mean_tokens", "cls": "cls_token"}[pooled]
        write_pooling(folder, config["hidden_size"], mode, normalised=False)
    return folder


def transformers_answers(folder: Path, head: str, texts: Sequence[Int32Array]) -> Float32Array:
    """What transformers says of the texts. `mean vector` and `first vector` are made of the last hidden states."""
    kind = kind_of(head)
    run = runner(folder, "AutoModel" if kind == "Model" else f"AutoModel{kind}")
    said = [run(ids) for ids in texts]
    if kind == "ForTokenClassification":
        found = np.concatenate(said)
    elif head == "mean vector":
        found = np.stack([values[1:-1].mean(axis=0) if len(values) > 2 else 0 * values[0] for values in said])
    else:
        found = np.stack([values[0] if head == "first vector" else values for values in said])
    print(head, found.shape, np.abs(found).max())
    answers: Float32Array = found.astype(np.float32)
    return answers


def write_small(folder: Path, config_class: str, config: Mapping[str, Any], raised: Callable[[str], bool]) -> None:
    """The small checkpoint and its logits. `raised`: the weights that transformers makes 0 or 1, and that get noise."""
    torch: Any = importlib.import_module("torch")
    transformers: Any = importlib.import_module("transformers")
    whole = getattr(transformers, config_class)(**config, **label_keys(LABELS), initializer_range=0.12)
    torch.manual_seed(SEED)
    model = transformers.AutoModelForTokenClassification.from_config(whole, attn_implementation="eager").eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if raised(name):
                weight.add_(0.2 * torch.randn_like(weight))
    model.save_pretrained(folder)
    bert = np.load(REFERENCE / "bert" / "reference.npz")
    real = bert["attention_mask"]
    ids = np.where(real, 5 + bert["input_ids"] % 250, 0)
    with torch.no_grad():
        logits = model(torch.tensor(ids), attention_mask=torch.tensor(real)).logits.numpy()
    arrays = {"input_ids": ids, "attention_mask": real, "lengths": bert["lengths"], "logits": logits}
    np.savez_compressed(folder / "reference.npz", **arrays)
