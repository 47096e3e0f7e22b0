"""DeBERTa and ModernBERT with random weights, and what transformers says of them.

A family has two kinds of checkpoint. The small one is stored whole, as those of BERT's families are, with its logits for
windows of up to 130 tokens. These cross the reach of ModernBERT's local layers, which is 8; its config.json is as releases
of transformers since 5.0 write it. The small DeBERTa scores distances by the query alone, with 32 buckets, so that windows
reach the buckets that several distances share.

Of the deep ones only the answers are stored, in `deep.npz`: `float32 [tokens, 7]` for labels, one text after the other, and
`[texts, values]` for other heads; ModernBERT's under `HEAD`, DeBERTa's under `SHAPE HEAD`. `modernbert` has heads of size
64, six layers, and 64 tokens of reach; its config.json is as older releases wrote it. `v3` is as DeBERTa-v3 is: 256 buckets,
normalised embeddings of distances, projections shared with the text, no positions. `v2` has its own projections (as the
first models had), no buckets, positions, types, and fewer distances than a window has. `p2c` is `v2` with scores by the key
alone.

Only writing needs PyTorch, as for head_references.py, which then writes the heads of the small ones:

    PYTHONPATH=.:scripts:tests torch-env/bin/python -m support.deep_references
    PYTHONPATH=.:scripts:tests torch-env/bin/python -m support.head_references deberta-v2 modernbert
"""

from __future__ import annotations

import importlib
import json
import tempfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from safetensors.numpy import save_file

from enricher.worker.records import Float32Array, Int32Array
from support.head_references import REFERENCE, runner, write_pooling

Shape = Literal["v2", "v3", "p2c", "modernbert"]
_LABELS = ("O", "B-PER", "I-PER", "B-ORG", "I-ORG", "B-LOC", "I-LOC")
_CLASSES = ("politics", "sport", "business")
_SEED = 20261129
_WIDTH, _INNER, _WORDS = 128, 96, 260
_VECTORS = ("mean vector", "first vector")
_OF_DEBERTA = ("labels", "classes", "number", *_VECTORS)
HEADS: dict[Shape, Sequence[str]] = {
    "v3": _OF_DEBERTA,
    "v2": _OF_DEBERTA,
    "p2c": ("labels",),
    "modernbert": ("labels", "cls classes", "mean classes", "number", *_VECTORS),
}
"""The heads of each shape that have answers."""
_UP_TO_512 = (*range(1, 9), *range(30, 34), *range(124, 136), *range(40, 500, 13), 509, 510, 511, 512)
LENGTHS_TOKENS: dict[Shape, Sequence[int]] = {
    "v3": _UP_TO_512,
    "v2": _UP_TO_512,
    "p2c": _UP_TO_512[:30],
    "modernbert": (*range(1, 9), *range(60, 76), *range(124, 136), *range(16, 512, 19), 511, 512, 700, 1100, 2048),
}
"""Some are around the distance from which on v3's share an embedding, 128, and all distances are in one; and around the
reach of a local layer of ModernBERT and twice that, beside three longer ones."""
_SMALL_DEBERTA = {
    "vocab_size": _WORDS,
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
_SMALL_MODERNBERT = {
    "vocab_size": _WORDS,
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
_DEBERTA = {
    "model_type": "deberta-v2",
    "vocab_size": _WORDS,
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
_V2 = _DEBERTA | {
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_relative_positions": 300,
    "position_biased_input": True,
    "type_vocab_size": 2,
}
_V3 = _DEBERTA | {
    "num_hidden_layers": 4,
    "num_attention_heads": 2,
    "max_relative_positions": -1,
    "position_buckets": 256,
    "norm_rel_ebd": "layer_norm",
    "share_att_key": True,
    "position_biased_input": False,
    "type_vocab_size": 0,
}
_MODERNBERT: dict[str, Any] = _SMALL_MODERNBERT | {
    "hidden_size": _WIDTH,
    "intermediate_size": _INNER,
    "num_hidden_layers": 6,
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
_CONFIGS: dict[Shape, dict[str, Any]] = {
    "v3": _V3,
    "v2": _V2,
    "p2c": _V2 | {"pos_att_type": ["p2c"]},
    "modernbert": _MODERNBERT,
}


def texts_of(shape: Shape) -> list[Int32Array]:
    """Ids of a text of each length."""
    random = np.random.default_rng(_SEED)
    return [(5 + random.random(length) * 250).astype(np.int32) for length in LENGTHS_TOKENS[shape]]


def answers_of(shape: Shape) -> dict[str, Float32Array]:
    """What transformers says, by head."""
    if shape == "modernbert":
        return dict(np.load(REFERENCE / "modernbert" / "deep.npz"))
    answered = np.load(REFERENCE / "deberta-v2" / "deep.npz")
    return {head: answered[f"{shape} {head}"] for head in HEADS[shape]}


def write_deep(shape: Shape, head: str, folder: Path) -> Path:
    """A deep checkpoint with a head, as transformers and sentence-transformers save it."""
    folder.mkdir(parents=True)
    config, kind = dict(_CONFIGS[shape]), _kind_of(head)
    is_modern = shape == "modernbert"
    config["architectures"] = [("ModernBert" if is_modern else "DebertaV2") + kind]
    weights = _modernbert_encoder() if is_modern else _deberta_encoder(config)
    if kind == "Model":
        weights = {name.removeprefix("model.").removeprefix("deberta."): value for name, value in weights.items()}
        mode = "mean_tokens" if head == "mean vector" else "cls_token"
        write_pooling(folder, _WIDTH, mode, normalised=False)
    else:
        labels = {"labels": _LABELS, "number": ("LABEL_0",)}.get(head, _CLASSES)
        config |= _label_keys(labels)
        if kind == "ForSequenceClassification":
            config["problem_type"] = "regression" if head == "number" else "single_label_classification"
        if is_modern:
            config["classifier_pooling"] = "cls" if head == "cls classes" else "mean"
        weights |= _modernbert_head(head, len(labels)) if is_modern else _deberta_head(kind, len(labels))
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def _kind_of(head: str) -> Literal["ForTokenClassification", "ForSequenceClassification", "Model"]:
    """The end of the class's name in transformers, for a family's head."""
    if head == "labels":
        return "ForTokenClassification"
    return "Model" if head in _VECTORS else "ForSequenceClassification"


def _label_keys(labels: Sequence[str]) -> dict[str, Any]:
    """The keys of config.json with the names of labels."""
    return {"id2label": dict(enumerate(labels)), "label2id": {name: number for number, name in enumerate(labels)}}


def _seeded(name: str, shape: tuple[int, ...]) -> Float32Array:
    """Only `random`, whose numbers are the same in every release of numpy. Scores of attention spread by about 2."""
    random = np.random.default_rng([_SEED, zlib.crc32(name.encode())])
    values: Float32Array = ((random.random(shape) - 0.5) * 4 / np.sqrt(shape[-1])).astype(np.float32)
    return values


def _seeded_norm(name: str) -> Float32Array:
    return 1 + _seeded(name, (_WIDTH,))


def _deberta_encoder(config: Mapping[str, Any]) -> dict[str, Float32Array]:
    distances = 2 * config.get("position_buckets", config["max_relative_positions"])
    tables = {"encoder.rel_embeddings": distances, "embeddings.word_embeddings": config["vocab_size"]}
    if config["position_biased_input"]:
        tables["embeddings.position_embeddings"] = config["max_position_embeddings"]
    if config["type_vocab_size"]:
        tables["embeddings.token_type_embeddings"] = config["type_vocab_size"]
    weights = {f"deberta.{name}.weight": _seeded(name, (rows, _WIDTH)) * 10 for name, rows in tables.items()}
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


def _deberta_head(kind: str, labels: int) -> dict[str, Float32Array]:
    pooler = _linear("pooler.dense", _WIDTH, _WIDTH) if kind == "ForSequenceClassification" else {}
    return _linear("classifier", labels, _WIDTH) | pooler


def _linear(name: str, out: int, width: int) -> dict[str, Float32Array]:
    return {f"{name}.weight": _seeded(name, (out, width)), f"{name}.bias": _seeded(f"{name} bias", (out,))}


def _norm(name: str) -> dict[str, Float32Array]:
    return {f"{name}.weight": _seeded_norm(name), f"{name}.bias": _seeded(f"{name} bias", (_WIDTH,))}


def _modernbert_encoder() -> dict[str, Float32Array]:
    weights = {"model.embeddings.tok_embeddings.weight": _seeded("words", (_WORDS, _WIDTH)) * 10}
    shapes = {
        "attn.Wqkv": (3 * _WIDTH, _WIDTH),
        "attn.Wo": (_WIDTH, _WIDTH),
        "mlp.Wi": (2 * _INNER, _WIDTH),
        "mlp.Wo": (_WIDTH, _INNER),
    }
    for index in range(_MODERNBERT["num_hidden_layers"]):
        name = f"model.layers.{index}"
        weights |= {f"{name}.{part}.weight": _seeded(f"{name} {part}", shape) for part, shape in shapes.items()}
        norms = ("attn_norm", "mlp_norm")[0 if index else 1 :]
        weights |= {f"{name}.{norm}.weight": _seeded_norm(f"{name} {norm}") for norm in norms}
    return weights | {f"model.{name}.weight": _seeded_norm(name) for name in ("embeddings.norm", "final_norm")}


def _modernbert_head(head: str, labels: int) -> dict[str, Float32Array]:
    return {
        "head.dense.weight": _seeded("dense", (_WIDTH, _WIDTH)),
        "head.norm.weight": _seeded_norm("head"),
        "classifier.weight": _seeded(head, (labels, _WIDTH)),
        "classifier.bias": _seeded(f"{head} bias", (labels,)),
    }


def main() -> None:
    """Write the small checkpoints with their logits, and the answers of the deep ones."""
    _write_small("deberta-v2", "DebertaV2Config", _SMALL_DEBERTA, ("Norm", ".bias"))
    _write_small("modernbert", "ModernBertConfig", _SMALL_MODERNBERT, ("norm", "classifier.bias"))
    arrays: dict[str, dict[str, Any]] = {"deberta-v2": {}, "modernbert": {}}
    with tempfile.TemporaryDirectory() as scratch:
        for shape, heads in HEADS.items():
            for head in heads:
                answered = _transformers_answers(write_deep(shape, head, Path(scratch) / shape / head), shape, head)
                if shape == "modernbert":
                    arrays["modernbert"][head] = answered
                else:
                    arrays["deberta-v2"][f"{shape} {head}"] = answered
    for family, of_it in arrays.items():
        np.savez_compressed(REFERENCE / family / "deep.npz", **of_it)


def _transformers_answers(folder: Path, shape: Shape, head: str) -> Float32Array:
    """What transformers says of the texts. `mean vector` and `first vector` are made of the last hidden states."""
    kind = _kind_of(head)
    run = runner(folder, "AutoModel" if kind == "Model" else f"AutoModel{kind}")
    said = [run(ids) for ids in texts_of(shape)]
    if kind == "ForTokenClassification":
        found = np.concatenate(said)
    elif head == "mean vector":
        found = np.stack([values[1:-1].mean(axis=0) if len(values) > 2 else 0 * values[0] for values in said])
    else:
        found = np.stack([values[0] if head == "first vector" else values for values in said])
    print(shape, head, found.shape, np.abs(found).max())
    answers: Float32Array = found.astype(np.float32)
    return answers


def _write_small(family: str, config_class: str, config: Mapping[str, Any], raised: Sequence[str]) -> None:
    """The small checkpoint and its logits. `raised`: names of weights that transformers makes 0 or 1, and that get noise."""
    torch: Any = importlib.import_module("torch")
    transformers: Any = importlib.import_module("transformers")
    folder = REFERENCE / family
    whole = getattr(transformers, config_class)(**config, **_label_keys(_LABELS), initializer_range=0.12)
    torch.manual_seed(_SEED)
    model = transformers.AutoModelForTokenClassification.from_config(whole, attn_implementation="eager").eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if any(part in name for part in raised):
                weight.add_(0.2 * torch.randn_like(weight))
    model.save_pretrained(folder)
    bert = np.load(REFERENCE / "bert" / "reference.npz")
    real = bert["attention_mask"]
    ids = np.where(real, 5 + bert["input_ids"] % 250, 0)
    with torch.no_grad():
        logits = model(torch.tensor(ids), attention_mask=torch.tensor(real)).logits.numpy()
    arrays = {"input_ids": ids, "attention_mask": real, "lengths": bert["lengths"], "logits": logits}
    np.savez_compressed(folder / "reference.npz", **arrays)


if __name__ == "__main__":
    main()
