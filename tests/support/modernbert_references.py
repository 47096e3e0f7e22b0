"""ModernBERT with random weights in two shapes, and what transformers says of them.

The small one is stored as those of the other families are, in tests/data/reference/modernbert: windows of up to 130 tokens
cross the reach of its local layers, which is 8. Its config.json is as releases of transformers since 5.0 write it.

The deep one has heads of size 64, six layers, and 64 tokens of reach; its config.json is as older releases wrote it. Its
answers are in `deep.npz`, as deep_references.py describes them: `labels`, and each of `HEADS`.

Only writing needs PyTorch, as for head_references.py, which then writes the heads of the small one:

    PYTHONPATH=.:scripts:tests torch-env/bin/python -m support.modernbert_references
    PYTHONPATH=.:scripts:tests torch-env/bin/python -m support.head_references modernbert
"""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from enricher.worker.records import Float32Array
from support.deep_references import (
    CLASSES,
    LABELS,
    kind_of,
    label_keys,
    seeded,
    seeded_norm,
    texts_of,
    transformers_answers,
    write_folder,
    write_small,
)
from support.head_references import REFERENCE

FOLDER = REFERENCE / "modernbert"
DeepHead = Literal["labels", "cls classes", "mean classes", "number", "mean vector", "first vector"]
HEADS: tuple[DeepHead, ...] = ("cls classes", "mean classes", "number", "mean vector", "first vector")
"""All heads but the one for labels."""
LENGTHS_TOKENS = (*range(1, 9), *range(60, 76), *range(124, 136), *range(16, 512, 19), 511, 512, 700, 1100, 2048)
"""65 texts of up to 512 tokens, many of them around the reach of a local layer and twice that, and three longer ones."""
_WIDTH, _INNER, _LAYERS = 128, 96, 6
_SMALL = {
    "vocab_size": 260,
    "hidden_size": 48,
    "intermediate_size": 32,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "pad_token_id": 0,
    "bos_token_id": 2,
    "cls_token_id": 2,
    "eos_token_id": 3,
    "sep_token_id": 3,
    "local_attention": 16,
    "max_position_embeddings": 192,
}
_DEEP = {
    **_SMALL,
    "hidden_size": _WIDTH,
    "intermediate_size": _INNER,
    "num_hidden_layers": _LAYERS,
    "num_attention_heads": 2,
    "model_type": "modernbert",
    "local_attention": 128,
    "max_position_embeddings": 8192,
    "norm_eps": 1e-5,
    "global_attn_every_n_layers": 3,
    "global_rope_theta": 160000.0,
    "local_rope_theta": 10000.0,
    "attention_bias": False,
    "mlp_bias": False,
    "norm_bias": False,
    "classifier_bias": False,
    "decoder_bias": True,
    "hidden_activation": "gelu",
    "classifier_activation": "gelu",
    "position_embedding_type": "absolute",
}


def write_deep(head: DeepHead, folder: Path) -> Path:
    """The deep checkpoint with a head."""
    folder.mkdir(parents=True)
    kind, weights = kind_of(head), _encoder()
    config = {**_DEEP, "architectures": [f"ModernBert{kind}"]}
    if kind == "Model":
        weights = {name.removeprefix("model."): value for name, value in weights.items()}
        return write_folder(folder, config, weights, pooled="mean" if head == "mean vector" else "cls")
    labels = {"labels": LABELS, "number": ("LABEL_0",)}.get(head, CLASSES)
    config |= label_keys(labels) | {"classifier_pooling": "cls" if head == "cls classes" else "mean"}
    if kind == "ForSequenceClassification":
        config["problem_type"] = "regression" if head == "number" else "single_label_classification"
    weights |= {
        "head.dense.weight": seeded("dense", (_WIDTH, _WIDTH)),
        "head.norm.weight": _norm("head"),
        "classifier.weight": seeded(head, (len(labels), _WIDTH)),
        "classifier.bias": seeded(f"{head} bias", (len(labels),)),
    }
    return write_folder(folder, config, weights, pooled=None)


def _encoder() -> dict[str, Float32Array]:
    weights = {"model.embeddings.tok_embeddings.weight": seeded("words", (260, _WIDTH)) * 10}
    shapes = {
        "attn.Wqkv": (3 * _WIDTH, _WIDTH),
        "attn.Wo": (_WIDTH, _WIDTH),
        "mlp.Wi": (2 * _INNER, _WIDTH),
        "mlp.Wo": (_WIDTH, _INNER),
    }
    for index in range(_LAYERS):
        name = f"model.layers.{index}"
        weights |= {f"{name}.{part}.weight": seeded(f"{name} {part}", shape) for part, shape in shapes.items()}
        norms = ("attn_norm", "mlp_norm")[0 if index else 1 :]
        weights |= {f"{name}.{norm}.weight": _norm(f"{name} {norm}") for norm in norms}
    return weights | {f"model.{name}.weight": _norm(name) for name in ("embeddings.norm", "final_norm")}


_norm = partial(seeded_norm, width=_WIDTH)


def main() -> None:
    """Write the small checkpoint with its logits, and the answers of the deep one."""
    FOLDER.mkdir(exist_ok=True)
    write_small(FOLDER, "ModernBertConfig", _SMALL, lambda name: "norm" in name or name == "classifier.bias")
    arrays: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for head in ("labels", *HEADS):
            folder = write_deep(head, Path(scratch) / head)
            arrays[head] = transformers_answers(folder, head, texts_of(LENGTHS_TOKENS))
    np.savez_compressed(FOLDER / "deep.npz", **arrays)


if __name__ == "__main__":
    main()
