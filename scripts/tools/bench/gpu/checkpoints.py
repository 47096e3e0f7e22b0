"""Checkpoints with the shape of a real model and random weights, without a download.

Weights are never zeros: with zeros a GPU draws less power and runs faster than with real weights.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
from safetensors.numpy import save_file

from enricher.worker.inference.checkpoint.configuration import FAMILIES
from enricher.worker.inference.checkpoint.families import CLASSIFIER

LABELS = ("O", "B-PER", "I-PER", "B-ORG", "I-ORG", "B-LOC", "I-LOC", "B-MISC", "I-MISC")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The keys of config.json that determine the computation."""

    model_type: str
    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    intermediate_size: int
    max_position_embeddings: int
    type_vocab_size: int = 2
    embedding_size: int | None = None
    """ELECTRA's narrower embeddings."""
    others: Mapping[str, Any] = field(default_factory=dict)
    """Keys that only this family has, or has another name for."""

    @property
    def layer_parameters(self) -> int:
        """Weights of all matrix products of the encoder."""
        attention, feed_forward = 4 * self.hidden_size**2, 2 * self.hidden_size * self.intermediate_size
        return self.num_hidden_layers * (attention + feed_forward)

    def flops(self, lengths_tokens: npt.NDArray[np.integer]) -> float:
        """Floating point operations for windows of these lengths: products, and scores x values within each window."""
        lengths = lengths_tokens.astype(np.float64)
        products = 2 * self.layer_parameters * lengths
        attention = 4 * self.num_hidden_layers * self.hidden_size * lengths**2
        return float((products + attention).sum())


BERT_LARGE = Shape(
    model_type="bert",
    vocab_size=30_522,
    hidden_size=1024,
    num_hidden_layers=24,
    num_attention_heads=16,
    intermediate_size=4096,
    max_position_embeddings=512,
)
SHAPES = {
    "bert-large": BERT_LARGE,
    "xlm-r-large": replace(
        BERT_LARGE, model_type="xlm-roberta", vocab_size=250_002, max_position_embeddings=514, type_vocab_size=1
    ),
    "bert-base": replace(
        BERT_LARGE,
        vocab_size=28_996,
        hidden_size=768,
        num_hidden_layers=12,
        num_attention_heads=12,
        intermediate_size=3072,
    ),
    "tiny": replace(
        BERT_LARGE, vocab_size=1000, hidden_size=64, num_hidden_layers=2, num_attention_heads=2, intermediate_size=128
    ),
}


OUTSIDE_BIAS = 2.0
"""Standard deviations of a random logit by which the first label, `O`, leads: about one label in ten is then an entity."""


def write_labelled(folder: Path, shape: Shape, source: Path) -> Path:
    """Write a checkpoint for real texts: with the tokenizer of the folder `source`, and an entity in about ten labels."""
    vocab_size = orjson.loads((source / "config.json").read_bytes())["vocab_size"]
    write_checkpoint(folder, replace(shape, vocab_size=vocab_size), outside_bias=OUTSIDE_BIAS)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(source / name, folder / name)
    return folder


def write_checkpoint(
    folder: Path, shape: Shape, *, spread: float = 0.02, seed: int = 0, outside_bias: float = 0.0
) -> Path:
    """Write a folder that transformers and enricher open: float16 weights, normal with deviation `spread`; norms near 1.

    `outside_bias`: added to the logit of `O`, in standard deviations of a logit.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    tensors = {}
    for name, size in _tensors(shape):
        values = rng.standard_normal(size, np.float32) * np.float32(spread)
        is_scale = "norm" in name.lower() and name.endswith("weight")
        if name == f"{CLASSIFIER}.bias":
            values[0] += outside_bias * spread * shape.hidden_size**0.5
        tensors[name] = (values + np.float32(is_scale)).astype(np.float16)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_bytes(orjson.dumps(_config(shape), option=orjson.OPT_INDENT_2))
    return folder


def _config(shape: Shape) -> dict[str, Any]:
    values = {key: value for key, value in asdict(shape).items() if value is not None and key != "others"}
    after_padding = shape.model_type in {"roberta", "xlm-roberta", "camembert"}
    return {
        **values,
        "architectures": [f"{_CLASSES[shape.model_type]}ForTokenClassification"],
        "hidden_act": "gelu",
        "layer_norm_eps": 1e-5 if after_padding else 1e-12,
        "pad_token_id": 1 if after_padding else 0,
        "id2label": {str(index): label for index, label in enumerate(LABELS)},
        "label2id": {label: index for index, label in enumerate(LABELS)},
        **shape.others,
    }


_CLASSES = {
    "bert": "Bert",
    "roberta": "Roberta",
    "xlm-roberta": "XLMRoberta",
    "camembert": "Camembert",
    "electra": "Electra",
    "distilbert": "DistilBert",
    "deberta-v2": "DebertaV2",
    "modernbert": "ModernBert",
}


def _tensors(shape: Shape) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Name and shape of every weight, by what its module's name ends with."""
    family, values = FAMILIES[shape.model_type], _config(shape)
    config = family.config_class.model_validate(values)
    width, inner, narrow = shape.hidden_size, shape.intermediate_size, shape.embedding_size or shape.hidden_size
    sizes = {
        "word_embeddings": (shape.vocab_size, narrow),
        "tok_embeddings": (shape.vocab_size, narrow),
        "position_embeddings": (shape.max_position_embeddings, narrow),
        "token_type_embeddings": (shape.type_vocab_size, narrow),
        "rel_embeddings": (2 * values.get("position_buckets", 0), width),
        "embeddings.LayerNorm": (narrow,),
        "embeddings_project": (width, narrow),
        "intermediate.dense": (inner, width),
        "ffn.lin1": (inner, width),
        "attention.output.dense": (width, width),
        "output.dense": (width, inner),
        "ffn.lin2": (width, inner),
        "attn.Wqkv": (3 * width, width),
        "mlp.Wi": (2 * inner, width),
        "mlp.Wo": (width, inner),
        CLASSIFIER: (len(LABELS), width),
    }
    for name in (*family.encoder_weights(config), *family.labels.weights()):
        module, _, kind = name.rpartition(".")
        rest = (width,) if "norm" in module.lower() else (width, width)
        size = next((size for end, size in sizes.items() if module.endswith(end)), rest)
        yield name, size if kind == "weight" else size[:1]
