"""ModernBERT with random weights in two shapes, and what transformers says of them.

The small one is stored as those of the other families are, in tests/data/reference/modernbert: windows of up to 130 tokens
cross the reach of its local layers, which is 8. Its config.json is as releases of transformers since 5.0 write it.

The deep one has heads of size 64, six layers, and 64 tokens of reach; its config.json is as older releases wrote it. Its
weights and texts come from a seed, so only the answers are stored, in `deep.npz`: for `labels` all logits, `float32 [tokens,
7]`, one text after the other; for each of `HEADS` a row for each text, `float32 [texts, values]`.

Only writing needs PyTorch, as for head_references.py, which then writes the heads of the small one:

    PYTHONPATH=.:scripts:tests torch-env/bin/python -m support.modernbert_references
    PYTHONPATH=.:scripts:tests torch-env/bin/python -m support.head_references modernbert
"""

from __future__ import annotations

import importlib
import json
import tempfile
import zlib
from pathlib import Path
from typing import Any, Literal

import numpy as np
from safetensors.numpy import save_file

from enricher.worker.records import Float32Array, Int32Array
from support.head_references import REFERENCE, runner, write_pooling

FOLDER = REFERENCE / "modernbert"
LABELS = ("O", "B-PER", "I-PER", "B-ORG", "I-ORG", "B-LOC", "I-LOC")
DeepHead = Literal["labels", "cls classes", "mean classes", "number", "mean vector", "first vector"]
HEADS: tuple[DeepHead, ...] = ("cls classes", "mean classes", "number", "mean vector", "first vector")
"""All heads but the one for labels."""
CLASSES = ("politics", "sport", "business")
SEED = 20261129
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


def deep_texts() -> list[Int32Array]:
    """Ids of each text."""
    random = np.random.default_rng(SEED)
    return [(5 + random.random(length) * 250).astype(np.int32) for length in LENGTHS_TOKENS]


def write_deep(head: DeepHead, folder: Path) -> Path:
    """The deep checkpoint with a head, as transformers and sentence-transformers save it."""
    folder.mkdir(parents=True)
    labels = {"labels": LABELS, "cls classes": CLASSES, "mean classes": CLASSES, "number": ("LABEL_0",)}.get(head, ())
    kind = {"labels": "ForTokenClassification"}.get(head, "ForSequenceClassification" if labels else "Model")
    weights, config = _encoder(), {**_DEEP, "architectures": [f"ModernBert{kind}"]}
    if labels:
        config |= {
            "id2label": dict(enumerate(labels)),
            "label2id": {name: number for number, name in enumerate(labels)},
        }
        config["classifier_pooling"] = "cls" if head == "cls classes" else "mean"
        weights |= {
            "head.dense.weight": _seeded("dense", (_WIDTH, _WIDTH)),
            "head.norm.weight": _norm("head"),
            "classifier.weight": _seeded(head, (len(labels), _WIDTH)),
            "classifier.bias": _seeded(f"{head} bias", (len(labels),)),
        }
    else:
        weights = {name.removeprefix("model."): value for name, value in weights.items()}
        write_pooling(folder, _WIDTH, "mean_tokens" if head == "mean vector" else "cls_token", normalised=False)
    if kind == "ForSequenceClassification":
        config["problem_type"] = "regression" if head == "number" else "single_label_classification"
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def _encoder() -> dict[str, Float32Array]:
    weights = {"model.embeddings.tok_embeddings.weight": _seeded("words", (260, _WIDTH)) * 10}
    shapes = {
        "attn.Wqkv": (3 * _WIDTH, _WIDTH),
        "attn.Wo": (_WIDTH, _WIDTH),
        "mlp.Wi": (2 * _INNER, _WIDTH),
        "mlp.Wo": (_WIDTH, _INNER),
    }
    for index in range(_LAYERS):
        name = f"model.layers.{index}"
        weights |= {f"{name}.{part}.weight": _seeded(f"{name} {part}", shape) for part, shape in shapes.items()}
        norms = ("attn_norm", "mlp_norm")[0 if index else 1 :]
        weights |= {f"{name}.{norm}.weight": _norm(f"{name} {norm}") for norm in norms}
    return weights | {f"model.{name}.weight": _norm(name) for name in ("embeddings.norm", "final_norm")}


def _seeded(name: str, shape: tuple[int, ...]) -> Float32Array:
    """Only `random`, whose numbers are the same in every release of numpy. Scores of attention spread by about 2."""
    random = np.random.default_rng([SEED, zlib.crc32(name.encode())])
    values: Float32Array = ((random.random(shape) - 0.5) * 4 / np.sqrt(shape[-1])).astype(np.float32)
    return values


def _norm(name: str) -> Float32Array:
    return 1 + _seeded(name, (_WIDTH,))


def main() -> None:
    """Write the small checkpoint with its logits, and the answers of the deep one."""
    FOLDER.mkdir(exist_ok=True)
    _write_small()
    arrays: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for head in ("labels", *HEADS):
            run = runner(write_deep(head, Path(scratch) / head), _CLASS_OF[head])
            said = [run(ids) for ids in deep_texts()]
            if head == "labels":
                arrays[head] = np.concatenate(said)
            elif head == "mean vector":
                arrays[head] = np.stack(
                    [values[1:-1].mean(axis=0) if len(values) > 2 else 0 * values[0] for values in said]
                )
            else:
                arrays[head] = np.stack([values[0] if head == "first vector" else values for values in said])
            print(head, arrays[head].shape, np.abs(arrays[head]).max())
    np.savez_compressed(FOLDER / "deep.npz", **{key: value.astype(np.float32) for key, value in arrays.items()})


_CLASS_OF = {
    "labels": "AutoModelForTokenClassification",
    **dict.fromkeys(("cls classes", "mean classes", "number"), "AutoModelForSequenceClassification"),
    **dict.fromkeys(("mean vector", "first vector"), "AutoModel"),
}


def _write_small() -> None:
    torch: Any = importlib.import_module("torch")
    transformers: Any = importlib.import_module("transformers")
    names = dict(enumerate(LABELS))
    config = transformers.ModernBertConfig(
        **_SMALL, id2label=names, label2id={name: number for number, name in names.items()}, initializer_range=0.12
    )
    torch.manual_seed(SEED)
    model = transformers.AutoModelForTokenClassification.from_config(config, attn_implementation="eager").eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "norm" in name or name == "classifier.bias":
                weight.add_(0.2 * torch.randn_like(weight))
    model.save_pretrained(FOLDER)
    bert = np.load(REFERENCE / "bert" / "reference.npz")
    real = bert["attention_mask"]
    ids = np.where(real, 5 + bert["input_ids"] % 250, 0)
    with torch.no_grad():
        logits = model(torch.tensor(ids), attention_mask=torch.tensor(real)).logits.numpy()
    arrays = {"input_ids": ids, "attention_mask": real, "lengths": bert["lengths"], "logits": logits}
    np.savez_compressed(FOLDER / "reference.npz", **arrays)


if __name__ == "__main__":
    main()
