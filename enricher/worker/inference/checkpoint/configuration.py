"""Reads config.json: the parts that determine the graph, and the kind of the head. No weights are read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError

from enricher.errors import ModelError
from enricher.worker.heads import KINDS, Head, HeadFiles
from enricher.worker.inference.checkpoint.families import FAMILIES


class EncoderConfig(BaseModel):
    """The parts of config.json that determine the graph. DistilBERT has its own names for some."""

    model_config = ConfigDict(extra="ignore", frozen=True, protected_namespaces=())

    model_type: str
    architectures: tuple[str, ...]
    vocab_size: int = Field(gt=0)
    hidden_size: int = Field(gt=0, validation_alias=AliasChoices("hidden_size", "dim"))
    intermediate_size: int = Field(gt=0, validation_alias=AliasChoices("intermediate_size", "hidden_dim"))
    layers: int = Field(gt=0, validation_alias=AliasChoices("num_hidden_layers", "n_layers"))
    heads: int = Field(gt=0, validation_alias=AliasChoices("num_attention_heads", "n_heads"))
    activation: str = Field(validation_alias=AliasChoices("hidden_act", "activation"))
    max_position_embeddings: int = Field(gt=0)
    layer_norm_eps: float = 1e-12
    """DistilBERT has no such key; its code uses this value."""
    embedding_size: int | None = None
    """ELECTRA's narrower embeddings; None if they are as wide as the encoder."""
    pad_token_id: int | None = None
    position_embedding_type: str = "absolute"
    is_decoder: bool = False
    id2label: dict[int, str] = Field(default_factory=dict)
    problem_type: str | None = None
    """The meaning of the values of sequence classification: classes, one or several of which hold, or a number."""


def read_config(folder: Path) -> dict[str, Any]:
    """The values of config.json. Raises ModelError."""
    path = folder / "config.json"
    if not folder.is_dir():
        raise ModelError(
            f"{folder}: no such folder. A model is a folder on this machine; "
            f"`hf download NAME --local-dir FOLDER` makes one."
        )
    if not path.is_file():
        raise ModelError(f"{folder}: no config.json. The folder must be a Hugging Face checkpoint, or its ONNX export.")
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
    try:
        config = EncoderConfig.model_validate({**values, "architectures": [architecture]})
    except ValidationError as error:
        raise ModelError(f"{folder / 'config.json'}: this configuration cannot be read: {error}") from error
    refusals = {
        f"activation {config.activation!r} (only 'gelu' is built)": config.activation != "gelu",
        f"position embeddings {config.position_embedding_type!r} (only 'absolute' are built)": (
            config.position_embedding_type != "absolute"
        ),
        "a decoder (tokens must see what follows them)": config.is_decoder,
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
            f"{', '.join(FAMILIES)}; MiniLM counts as bert. Its export as ONNX runs, if it is a token "
            f"classification model: a folder with model.onnx, config.json and the tokenizer's files "
            f"(`optimum-cli export onnx --task token-classification --model SOURCE FOLDER`). Else choose one of those."
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
