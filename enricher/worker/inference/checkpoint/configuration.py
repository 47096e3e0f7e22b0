"""Reads config.json: the family of the encoder, its configuration, and the kind of the head; refuses unread weights.

No other code lists the families; each has its own file (families.py has their interface).

A checkpoint may have weights of the graph and weights that change no answer; all other weights are refused. transformers
only warns about weights that a model has no place for, and answers without them: the weights of a CRF, of an adapter, of a
second head, of layers that config.json does not count. Names are enough to see that; no weight is read, and nothing about
ONNX belongs here.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from enricher.errors import ModelError
from enricher.worker.heads import KINDS, Head, HeadFiles, Layers
from enricher.worker.inference.checkpoint.bert_weights import BERT_FAMILIES
from enricher.worker.inference.checkpoint.deberta_weights import DEBERTA
from enricher.worker.inference.checkpoint.families import EncoderConfig, Family
from enricher.worker.inference.checkpoint.modernbert_weights import ModernBertFamily


def read_config(folder: Path) -> dict[str, Any]:
    """The values of config.json. Raises ModelError."""
    path = folder / "config.json"
    if not folder.is_dir():
        raise ModelError(
            f"{folder}: no such folder. A model is a folder on this machine; "
            f"`hf download NAME --local-dir FOLDER` makes one."
        )
    if not path.is_file():
        raise ModelError(
            f"{folder}: no config.json. The folder must be a Hugging Face checkpoint, or its ONNX export. GLiNER and Flair "
            f"save other files: choose a model of transformers, or train one on their answers."
        )
    return read_object(path)


def read_object(path: Path) -> dict[str, Any]:
    """The values of a JSON object. Raises ModelError."""
    try:
        values = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ModelError(f"{path}: this configuration cannot be read: {error}") from error
    if not isinstance(values, dict):
        raise ModelError(f"{path}: this configuration cannot be read: it is not a JSON object")
    return values


def read_encoder(folder: Path) -> tuple[EncoderConfig, type[Head]]:
    """The configuration of a model whose graph we build, and the kind of its head. Raises ModelError."""
    values = read_config(folder)
    architecture = _architecture(values)
    # First, because models that are not supported may lack the keys that are checked next.
    kind = _kind(folder, str(values.get("model_type")), head_files(folder, architecture, values))
    family = FAMILIES[values["model_type"]]
    try:
        config = family.config_class.model_validate({**values, "architectures": [architecture]})
    except ValidationError as error:
        raise ModelError(f"{folder / 'config.json'}: this configuration cannot be read: {error}") from error
    refusals = {
        **family.refusals(config),
        f"{config.heads} heads over width {config.hidden_size}": config.hidden_size % config.heads != 0,
    }
    for what, refused in refusals.items():
        if refused:
            raise ModelError(f"{folder}: not supported: {what}. Choose another checkpoint.")
    return config, kind


def head_files(folder: Path, architecture: str, config: Mapping[str, Any]) -> HeadFiles:
    """The facts by which a kind of head recognises and describes its checkpoint. `config`: the values of config.json."""
    return HeadFiles(
        folder,
        architecture,
        config,
        has=lambda name: (folder / name).is_file(),
        read=lambda name: (folder / name).read_bytes(),
        read_object=lambda name: read_object(folder / name),
    )


def _architecture(values: Mapping[str, Any]) -> str:
    architectures = values.get("architectures")
    return str(architectures[0]) if isinstance(architectures, list) and architectures else "model without a name"


def _kind(folder: Path, model_type: str, files: HeadFiles) -> type[Head]:
    """The kind of the head. Raises ModelError if the family or the head is not supported."""
    architecture = files.architecture
    if model_type not in FAMILIES:
        raise ModelError(
            f"{folder}: {architecture} ({model_type}) is not supported. Supported are checkpoints of "
            f"{', '.join(FAMILIES)}; MiniLM counts as bert. Its export as ONNX runs, for entities, "
            f"classes, a number or vectors: a folder with model.onnx, config.json and the tokenizer's files, for vectors "
            f"modules.json and 1_Pooling too (`optimum-cli export onnx --task token-classification --model SOURCE FOLDER`; "
            f"text-classification or feature-extraction for others). Else choose one of those."
        )
    for kind in reversed(KINDS.values()):
        if kind.recognises(files):
            return kind
    raise ModelError(
        f"{folder}: this checkpoint is a {architecture}: it has no token classification head, none for sequences, and no "
        f"1_Pooling/config.json of sentence-transformers. Fine-tune it for named entities or classes, or choose one whose "
        f"architecture ends in ForTokenClassification or ForSequenceClassification; for vectors, download "
        f"all files of its folder."
    )


FAMILIES: dict[str, Family] = {**BERT_FAMILIES, "deberta-v2": DEBERTA, "modernbert": ModernBertFamily()}
"""The families whose graph we build, by `model_type` of config.json."""

MERGE_ADAPTER = "Merge an adapter into the weights where PyTorch is (PEFT: merge_and_unload), and save the whole model."
_OLD_NAMES = (("LayerNorm.weight", "LayerNorm.gamma"), ("LayerNorm.bias", "LayerNorm.beta"))
"""Checkpoints converted from TensorFlow keep its names for these two; transformers renames them too."""
_CONSTANTS = ("embeddings.position_ids", "embeddings.token_type_ids")
"""Constants (the numbers 0, 1, 2, ..., and zeros) that older releases of transformers saved."""
_POOLER = ("pooler.dense.weight", "pooler.dense.bias")
"""A layer in many checkpoints for named entities and vectors, which only BERT's head for sequences reads."""
_PRE_TRAINING = (
    *("cls.", "lm_head.", "vocab_transform.", "vocab_layer_norm.", "vocab_projector."),
    *("generator_predictions.", "generator_lm_head.", "discriminator_predictions."),
)
"""The heads of pre-training. An encoder that makes vectors may have been saved with one; beside a head for tokens or
sequences transformers saves none, so there it would be a second head."""
_CLASSES = {
    "labels": "AutoModelForTokenClassification",
    "classifier": "AutoModelForSequenceClassification",
    "none": "AutoModel",
}
"""The class of transformers that saves a folder without unread weights, by the layers of the head."""
_SHOWN = 5
"""The number of names in a message."""


def head_weights(family: Family, layers: Layers) -> Iterator[str]:
    """The names of the weights of a head, in the order of the graph."""
    heads = {"labels": (family.labels,), "classifier": (family.classes,), "none": ()}
    for head in heads[layers]:
        yield from head.weights()


def stored_name(name: str, family: Family, stored: Collection[str]) -> str | None:
    """The stored name of a weight, which lacks the family's prefix if the encoder was saved alone; None if it is missing."""
    for known in (name, name.removeprefix(f"{family.base}.")):
        if known in stored:
            return known
        for new, old in _OLD_NAMES:
            if known.endswith(new) and (renamed := known.replace(new, old)) in stored:
                return renamed
    return None


def refuse_unread(folder: Path, config: EncoderConfig, layers: Layers, stored: Collection[str]) -> None:
    """Raise ModelError if answers may depend on a weight that no graph reads. `stored`: the names of all weights."""
    family = FAMILIES[config.model_type]
    names = (*family.encoder_weights(config), *head_weights(family, layers))
    unread = set(stored) - {stored_name(name, family, stored) for name in names}
    unread -= {prefix + name for name in (*_CONSTANTS, *_POOLER) for prefix in ("", f"{family.base}.")}
    if layers == "none":
        unread = {name for name in unread if not name.startswith(_PRE_TRAINING)}
    if unread:
        shown = ", ".join(sorted(unread)[:_SHOWN]) + (", ..." if len(unread) > _SHOWN else "")
        raise ModelError(
            f"{folder}: {len(unread)} of {len(stored)} weights would be ignored, and its answers may depend on them "
            f"({shown}). A {config.model_type} of {config.layers} layers with this head has no place for them. "
            f"{MERGE_ADAPTER} A CRF or a second head is not supported: choose a checkpoint without. If the model was "
            f"not trained with them, {_CLASSES[layers]}.from_pretrained(...).save_pretrained(...) leaves them out."
        )
