"""DeBERTa with random weights in four shapes, and what transformers says of them.

The small one is stored as those of the other families are, in tests/data/reference/deberta-v2: it scores distances by the
query alone, with 32 buckets, so that windows of up to 130 tokens reach the buckets that several distances share.

The deep ones have answers in `deep.npz`, as deep_references.py describes them, under `SHAPE HEAD`. `v3` is as DeBERTa-v3 is:
256 buckets, normalised embeddings of distances, projections shared with the text, no positions. `v2` has its own projections
(as the first models had), no buckets, positions, types, and fewer distances than a window has. `p2c` is `v2` with scores by
the key alone, for labels only.

Only writing needs PyTorch, as for head_references.py, which then writes the heads of the small one:

    PYTHONPATH=.:scripts:tests torch-env/bin/python -m support.deberta_references
    PYTHONPATH=.:scripts:tests torch-env/bin/python -m support.head_references deberta-v2
"""

from __future__ import annotations

import tempfile
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

FOLDER = REFERENCE / "deberta-v2"
Shape = Literal["v2", "v3", "p2c"]
DeepHead = Literal["labels", "classes", "number", "mean vector", "first vector"]
HEADS: tuple[DeepHead, ...] = ("classes", "number", "mean vector", "first vector")
"""All heads but the one for labels."""
LENGTHS_TOKENS = (*range(1, 9), *range(30, 34), *range(124, 136), *range(40, 500, 13), 509, 510, 511, 512)
"""64 texts, some of them around the distance from which on v3's share an embedding, 128, and all distances are in one."""
_WIDTH, _INNER = 128, 96
_SMALL = {
    "vocab_size": 260,
    "hidden_size": 48,
    "intermediate_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": 192,
    "relative_attention": True,
    "position_buckets": 32,
    "max_relative_positions": 128,
    "pos_att_type": ["c2p"],
    "position_biased_input": False,
    "norm_rel_ebd": "layer_norm",
}
_DEEP = {
    "model_type": "deberta-v2",
    "vocab_size": 260,
    "hidden_size": _WIDTH,
    "intermediate_size": _INNER,
    "hidden_act": "gelu",
    "pooler_hidden_act": "gelu",
    "pooler_hidden_size": _WIDTH,
    "layer_norm_eps": 1e-7,
    "max_position_embeddings": 512,
    "relative_attention": True,
    "pos_att_type": "p2c|c2p",
    "pad_token_id": 0,
}
_SHAPES: dict[Shape, dict[str, Any]] = {
    "v3": {
        "num_hidden_layers": 4,
        "num_attention_heads": 2,
        "max_relative_positions": -1,
        "position_buckets": 256,
        "norm_rel_ebd": "layer_norm",
        "share_att_key": True,
        "position_biased_input": False,
        "type_vocab_size": 0,
    },
    "v2": {
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "max_relative_positions": 300,
        "position_biased_input": True,
        "type_vocab_size": 2,
    },
}
_SHAPES["p2c"] = _SHAPES["v2"] | {"pos_att_type": ["p2c"]}


def write_deep(shape: Shape, head: DeepHead, folder: Path) -> Path:
    """A deep checkpoint with a head."""
    folder.mkdir(parents=True)
    kind = kind_of(head)
    config = _DEEP | _SHAPES[shape] | {"architectures": [f"DebertaV2{kind}"]}
    weights = _encoder(config)
    if kind == "Model":
        weights = {name.removeprefix("deberta."): value for name, value in weights.items()}
        return write_folder(folder, config, weights, pooled="mean" if head == "mean vector" else "cls")
    labels = {"labels": LABELS, "number": ("LABEL_0",)}.get(head, CLASSES)
    config |= label_keys(labels)
    weights |= _linear("classifier", len(labels), _WIDTH)
    if kind == "ForSequenceClassification":
        config["problem_type"] = "regression" if head == "number" else "single_label_classification"
        weights |= _linear("pooler.dense", _WIDTH, _WIDTH)
    return write_folder(folder, config, weights, pooled=None)


def _encoder(config: dict[str, Any]) -> dict[str, Float32Array]:
    distances = 2 * config.get("position_buckets", config["max_relative_positions"])
    tables = {"encoder.rel_embeddings": distances, "embeddings.word_embeddings": config["vocab_size"]}
    if config["position_biased_input"]:
        tables["embeddings.position_embeddings"] = config["max_position_embeddings"]
    if config["type_vocab_size"]:
        tables["embeddings.token_type_embeddings"] = config["type_vocab_size"]
    weights = {f"deberta.{name}.weight": seeded(name, (rows, _WIDTH)) * 10 for name, rows in tables.items()}
    weights |= _norm("deberta.embeddings.LayerNorm")
    if "norm_rel_ebd" in config:
        weights |= _norm("deberta.encoder.LayerNorm")
    own = {"p2c": "pos_query_proj", "c2p": "pos_key_proj"}
    projections = ["query_proj", "key_proj", "value_proj"]
    if not config.get("share_att_key"):
        projections += [name for term, name in own.items() if term in config["pos_att_type"]]
    for index in range(config["num_hidden_layers"]):
        layer = f"deberta.encoder.layer.{index}"
        for name in projections:
            weights |= _linear(f"{layer}.attention.self.{name}", _WIDTH, _WIDTH)
        weights |= _linear(f"{layer}.attention.output.dense", _WIDTH, _WIDTH)
        weights |= _linear(f"{layer}.intermediate.dense", _INNER, _WIDTH)
        weights |= _linear(f"{layer}.output.dense", _WIDTH, _INNER)
        weights |= _norm(f"{layer}.attention.output.LayerNorm") | _norm(f"{layer}.output.LayerNorm")
    return weights


def _linear(name: str, out: int, width: int) -> dict[str, Float32Array]:
    return {f"{name}.weight": seeded(name, (out, width)), f"{name}.bias": seeded(f"{name} bias", (out,))}


def _norm(name: str) -> dict[str, Float32Array]:
    return {f"{name}.weight": seeded_norm(name, _WIDTH), f"{name}.bias": seeded(f"{name} bias", (_WIDTH,))}


def main() -> None:
    """Write the small checkpoint with its logits, and the answers of the deep ones."""
    FOLDER.mkdir(exist_ok=True)
    write_small(FOLDER, "DebertaV2Config", _SMALL, lambda name: "Norm" in name or name.endswith(".bias"))
    arrays: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for shape, heads in ANSWERED.items():
            for head in heads:
                folder = write_deep(shape, head, Path(scratch) / shape / head)
                texts = texts_of(LENGTHS_TOKENS)[: P2C_TEXTS if shape == "p2c" else None]
                arrays[f"{shape} {head}"] = transformers_answers(folder, head, texts)
    np.savez_compressed(FOLDER / "deep.npz", **arrays)


P2C_TEXTS = 30
ANSWERED: dict[Shape, tuple[DeepHead, ...]] = {"v3": ("labels", *HEADS), "v2": ("labels", *HEADS), "p2c": ("labels",)}
"""The heads of each shape."""


if __name__ == "__main__":
    main()
