"""Checkpoints with the shape of a real model and random weights, without a download.

Weights are never zeros: with zeros a GPU draws less power and runs faster than with real weights.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import orjson
from safetensors.numpy import save_file

from enricher.worker.inference.checkpoint.bert_weights import BERT_FAMILIES, BertFamily
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


SHAPES = {
    "xlm-r-large": Shape(
        model_type="xlm-roberta",
        vocab_size=250_002,
        hidden_size=1024,
        num_hidden_layers=24,
        num_attention_heads=16,
        intermediate_size=4096,
        max_position_embeddings=514,
        type_vocab_size=1,
    ),
    "bert-base": Shape(
        model_type="bert",
        vocab_size=28_996,
        hidden_size=768,
        num_hidden_layers=12,
        num_attention_heads=12,
        intermediate_size=3072,
        max_position_embeddings=512,
    ),
    "bert-large": Shape(
        model_type="bert",
        vocab_size=30_522,
        hidden_size=1024,
        num_hidden_layers=24,
        num_attention_heads=16,
        intermediate_size=4096,
        max_position_embeddings=512,
    ),
    "tiny": Shape(
        model_type="bert",
        vocab_size=1000,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=128,
        max_position_embeddings=512,
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


def _config(shape: Shape) -> dict[str, object]:
    kinds = {"bert": "Bert", "roberta": "Roberta", "xlm-roberta": "XLMRoberta", "camembert": "Camembert"}
    kind = kinds.get(shape.model_type) or {"electra": "Electra", "distilbert": "DistilBert"}[shape.model_type]
    return {
        **{key: value for key, value in asdict(shape).items() if value is not None},
        "architectures": [f"{kind}ForTokenClassification"],
        "hidden_act": "gelu",
        "layer_norm_eps": 1e-5 if BERT_FAMILIES[shape.model_type].positions_after_padding else 1e-12,
        "pad_token_id": 1 if BERT_FAMILIES[shape.model_type].positions_after_padding else 0,
        "id2label": {str(index): label for index, label in enumerate(LABELS)},
        "label2id": {label: index for index, label in enumerate(LABELS)},
    }


def _tensors(shape: Shape) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Name and shape of every weight."""
    family, width = BERT_FAMILIES[shape.model_type], shape.embedding_size or shape.hidden_size
    yield f"{family.embeddings('word_embeddings')}.weight", (shape.vocab_size, width)
    yield f"{family.embeddings('position_embeddings')}.weight", (shape.max_position_embeddings, width)
    if family.token_types:
        yield f"{family.embeddings('token_type_embeddings')}.weight", (shape.type_vocab_size, width)
    yield from _pair(family.embeddings("LayerNorm"), (width,))
    if width != shape.hidden_size:
        yield from _pair(family.projection, (shape.hidden_size, width))
    for index in range(shape.num_hidden_layers):
        yield from _layer(family, shape, index)
    yield from _pair(CLASSIFIER, (len(LABELS), shape.hidden_size))


def _layer(family: BertFamily, shape: Shape, index: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    part, width = family.layer, shape.hidden_size
    for name in (part.query, part.key, part.value, part.attention_output):
        yield from _pair(family.in_layer(index, name), (width, width))
    for name in (part.attention_norm, part.output_norm):
        yield from _pair(family.in_layer(index, name), (width,))
    yield from _pair(family.in_layer(index, part.intermediate), (shape.intermediate_size, width))
    yield from _pair(family.in_layer(index, part.output), (width, shape.intermediate_size))


def _pair(module: str, size: tuple[int, ...]) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield f"{module}.weight", size
    yield f"{module}.bias", size[:1]
