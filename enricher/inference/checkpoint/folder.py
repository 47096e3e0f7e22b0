"""A Hugging Face token classification folder: its config, its labels, its digest, and its weights one at a time.

Reads files only: no hub, no PyTorch, no pickles (which run code when opened).
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError
from safetensors import SafetensorError, safe_open

from enricher.errors import ModelError
from enricher.inference.checkpoint.families import FAMILIES, Family
from enricher.inference.checkpoint.labels import label_names

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from enricher.records import Float32Array

HEAD = "ForTokenClassification"
SINGLE_FILE = "model.safetensors"
SHARD_INDEX = "model.safetensors.index.json"
VOCABULARY_FILES = ("tokenizer.json", "vocab.txt", "vocab.json", "sentencepiece.bpe.model", "spiece.model")
"""The files that may hold a tokenizer's vocabulary; one of them is required."""
TOKENIZER_FILES = (
    *VOCABULARY_FILES,
    "merges.txt",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
)
"""Every file that a fast tokenizer of the supported families may use."""
_OLD_NAMES = (("LayerNorm.weight", "LayerNorm.gamma"), ("LayerNorm.bias", "LayerNorm.beta"))
"""Checkpoints converted from TensorFlow keep its names for these two; transformers renames them too."""


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


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """An opened folder. Everything in it was checked except the shapes of the weights."""

    folder: Path
    config: EncoderConfig
    labels: tuple[str, ...]
    """Label names by id."""
    files: tuple[Path, ...]
    """The configuration, and the files with the weights, with their index if there is one."""
    digest: str
    """sha256 (hex) over configuration, weights and tokenizer files: equal digests mean the same model."""
    _file_of: Mapping[str, Path] = field(default_factory=dict, repr=False)

    @classmethod
    def open(cls, folder: Path) -> Checkpoint:
        """Read and check a folder. Raises ModelError, which says what to do, if it cannot be used."""
        config = _supported(folder)
        file_of = _weight_files(folder)
        index = [] if (folder / SINGLE_FILE).is_file() else [folder / SHARD_INDEX]
        files = (folder / "config.json", *index, *sorted(set(file_of.values())))
        return cls(folder, config, label_names(config.id2label), files, digest_of(folder, files), file_of)

    @property
    def name(self) -> str:
        """The folder's own name."""
        return self.folder.resolve().name

    @property
    def family(self) -> Family:
        """What its weights are called; for an ONNX model of another family, where its positions begin."""
        return FAMILIES.get(self.config.model_type, FAMILIES["bert"])

    @property
    def first_position(self) -> int:
        """The position id of a window's first token."""
        if not self.family.positions_after_padding:
            return 0
        return (1 if self.config.pad_token_id is None else self.config.pad_token_id) + 1

    @property
    def max_window_tokens(self) -> int:
        """The longest window that the position table allows, special tokens included."""
        return self.config.max_position_embeddings - self.first_position

    def weight(self, name: str) -> Float32Array:
        """Read one weight as float32. Raises ModelError if it is missing or of an unsupported type."""
        stored = self._stored_name(name)
        try:
            with safe_open(self._file_of[stored], framework="np") as file:
                value = file.get_tensor(stored)
        except (OSError, SafetensorError, KeyError, TypeError, AttributeError) as error:
            raise ModelError(f"{self.folder}: cannot read weight {stored!r}: {error}") from error
        if value.dtype.name not in {"float32", "float16", "bfloat16"}:
            raise ModelError(
                f"{self.folder}: weight {stored!r} is {value.dtype}; only float32, float16 and bfloat16 are read"
            )
        as_float32: Float32Array = value.astype(np.float32, copy=False)
        return as_float32

    def _stored_name(self, name: str) -> str:
        if name in self._file_of:
            return name
        for new, old in _OLD_NAMES:
            if name.endswith(new) and (renamed := name.replace(new, old)) in self._file_of:
                return renamed
        raise ModelError(
            f"{self.folder}: no weight {name!r} among {len(self._file_of)}. "
            f"Is this a complete {self.config.architectures[0]}?"
        )


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
    try:
        values = json.loads(path.read_bytes())
    except ValueError as error:
        raise ModelError(f"{path}: this configuration cannot be read: {error}") from error
    if not isinstance(values, dict):
        raise ModelError(f"{path}: this configuration cannot be read: it is not a JSON object")
    return values


def _supported(folder: Path) -> EncoderConfig:
    """The configuration of a model that we build. Raises ModelError."""
    values = read_config(folder)
    _require_architecture(folder, values)  # another one may lack the keys that are checked next
    try:
        config = EncoderConfig.model_validate(values)
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
    return config


def _require_architecture(folder: Path, config: Mapping[str, Any]) -> None:
    model_type, architectures = config.get("model_type"), config.get("architectures")
    architecture = (
        str(architectures[0]) if isinstance(architectures, list) and architectures else "model without a name"
    )
    if model_type not in FAMILIES:
        raise ModelError(
            f"{folder}: {architecture} ({model_type}) is not supported. Supported are token classification "
            f"checkpoints of {', '.join(FAMILIES)}; MiniLM counts as bert. Its export as ONNX runs, if it is a token "
            f"classification model: a folder with model.onnx, config.json and the tokenizer's files "
            f"(`optimum-cli export onnx --task token-classification --model SOURCE FOLDER`). Else choose one of those."
        )
    if not architecture.endswith(HEAD):
        raise ModelError(
            f"{folder}: this checkpoint is a {architecture}: it has no token classification head. "
            f"Fine-tune it for named entities, or choose one whose architecture ends in {HEAD}."
        )


def _weight_files(folder: Path) -> dict[str, Path]:
    """The file of each weight, from the index or from the single file."""
    try:
        if (folder / SINGLE_FILE).is_file():  # an index beside it is left over from an earlier save
            with safe_open(folder / SINGLE_FILE, framework="np") as file:
                files = dict.fromkeys(file.keys(), folder / SINGLE_FILE)
        elif (folder / SHARD_INDEX).is_file():
            shards = json.loads((folder / SHARD_INDEX).read_bytes())["weight_map"]
            files = {str(name): folder / str(file) for name, file in shards.items()}
        else:
            raise ModelError(_no_weights(folder))
    except (OSError, SafetensorError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise ModelError(
            f"{folder}: the weights cannot be read: {error}. Copy the folder again, completely "
            f"(from a clone: `git lfs pull`)."
        ) from error
    missing = sorted({path.name for path in files.values() if not path.is_file() or path.parent != folder})
    if missing:
        raise ModelError(f"{folder}: weights missing: {', '.join(missing)}. Copy the folder again, completely.")
    return files


def _no_weights(folder: Path) -> str:
    if any(folder.glob("pytorch_model*.bin")):
        return (
            f"{folder}: the weights are a pickle (pytorch_model.bin), which runs code when opened, so we do not. "
            f"Convert them once, where PyTorch is: "
            f"AutoModelForTokenClassification.from_pretrained(...).save_pretrained(...)."
        )
    return f"{folder}: no {SINGLE_FILE} and no {SHARD_INDEX}. The folder must hold the weights as safetensors."


def digest_of(folder: Path, files: Iterable[Path]) -> str:
    """sha256 (hex) over the names and the contents of files and of the folder's tokenizer files."""
    whole = hashlib.sha256()
    tokenizer = [folder / name for name in TOKENIZER_FILES if (folder / name).is_file()]
    for path in sorted([*files, *tokenizer]):
        with path.open("rb") as file:
            whole.update(f"{path.name}\0{hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
    return whole.hexdigest()
