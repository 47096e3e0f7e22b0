"""A model's folder: its config, its head and labels, its digest, and its weights one at a time.

Links in it must not point outside, and graphs in a cache are as private as the originals. Nothing is run or written here;
onnx_model.py opens a folder whose model is ONNX already.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

from enricher.errors import ModelError
from enricher.worker.heads import KINDS, HeadSpec
from enricher.worker.inference.checkpoint.configuration import (
    FAMILIES,
    MERGE_ADAPTER,
    head_files,
    head_weights,
    read_encoder,
    refuse_unread,
    stored_name,
)
from enricher.worker.inference.checkpoint.families import EncoderConfig, Family
from enricher.worker.records import Float32Array

SINGLE_FILE = "model.safetensors"
SHARD_INDEX = "model.safetensors.index.json"
ADAPTER_FILE = "adapter_config.json"
"""The file that describes an adapter. Where PEFT is installed, transformers adds the adapter to the model by itself."""
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

OpenFiles = dict[Path, Any]
"""Files of weights that `safe_open` opened, by their paths. They are closed with the last reference to the dictionary."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """An opened folder. Everything in it was checked except the shapes of the weights."""

    folder: Path
    config: EncoderConfig
    head: HeadSpec
    files: tuple[Path, ...]
    """config.json, the weights and their index if there is one, and the files that describe pooling."""
    digest: str
    """sha256 (hex) over configuration, weights and tokenizer files: equal digests mean the same model."""
    _file_of: Mapping[str, Path] = field(default_factory=dict, repr=False)

    @classmethod
    def open(cls, folder: Path) -> Checkpoint:
        """Read and check a folder. Raises ModelError, which says what to do, if it cannot be used."""
        if (folder / ADAPTER_FILE).is_file():
            raise ModelError(f"{folder}: {ADAPTER_FILE} describes an adapter, which would be ignored. {MERGE_ADAPTER}")
        config, kind = read_encoder(folder)
        file_of = _weight_files(folder, config.architectures[0])
        refuse_unread(folder, config, kind.layers, file_of.keys())
        index = [] if (folder / SINGLE_FILE).is_file() else [folder / SHARD_INDEX]
        head, described_in = kind.read_spec(head_files(folder, config.architectures[0], config.model_dump()))
        if kind.layers == "classifier":
            head = replace(head, reads=config.class_reads)
        described = (folder / name for name in described_in)
        files = (folder / "config.json", *index, *sorted(set(file_of.values())), *described)
        opened = cls(folder, config, head, files, digest_of(folder, files), file_of)
        for name in head_weights(opened.family, kind.layers):
            opened._stored_name(name)  # refuses a folder without it
        return opened

    @property
    def labels(self) -> tuple[str, ...]:
        """Label names by id: position and kind for `ner`, plain names for `classification`, else none."""
        return self.head.labels

    @property
    def name(self) -> str:
        """The folder's own name."""
        return self.folder.resolve().name

    @property
    def source(self) -> Path:
        """The source that names this model in a setting or on a command line."""
        return self.folder

    @property
    def family(self) -> Family:
        """The encoder's family. An ONNX model of an unknown one counts as BERT: only its first position matters."""
        return FAMILIES.get(self.config.model_type, FAMILIES["bert"])

    @property
    def first_position(self) -> int:
        """The position id of a window's first token."""
        return self.family.first_position(self.config)

    @property
    def max_window_tokens(self) -> int:
        """The longest window that the position table allows, special tokens included."""
        return self.config.max_position_embeddings - self.first_position

    def weight(self, name: str, opened: OpenFiles | None = None) -> Float32Array:
        """Read one weight as float32. Raises ModelError if it is missing or of an unsupported type.

        The file stays open in `opened`, for callers that read many weights: opening it takes up to some milliseconds.
        """
        stored = self._stored_name(name)
        path, files = self._file_of[stored], {} if opened is None else opened
        try:
            if path not in files:
                files[path] = safe_open(path, framework="np")
            value = files[path].get_tensor(stored)
        except (OSError, SafetensorError, KeyError, TypeError, AttributeError) as error:
            raise ModelError(f"{self.folder}: cannot read weight {stored!r}: {error}") from error
        if value.dtype.name not in {"float32", "float16", "bfloat16"}:
            raise ModelError(
                f"{self.folder}: weight {stored!r} is {value.dtype}; only float32, float16 and bfloat16 are read"
            )
        as_float32: Float32Array = value.astype(np.float32, copy=False)
        return as_float32

    def _stored_name(self, name: str) -> str:
        """The name in the file. Raises ModelError if there is none."""
        if (known := stored_name(name, self.family, self._file_of)) is not None:
            return known
        raise ModelError(
            f"{self.folder}: no weight {name!r} among {len(self._file_of)}. "
            f"Is this a complete {self.config.architectures[0]}?"
        )


def require_ner(checkpoint: Checkpoint) -> Checkpoint:
    """Return the checkpoint. Raises ModelError unless its head finds entities, for uses that make sense only then."""
    if KINDS[checkpoint.head.kind].serves_alone:
        return checkpoint
    raise ModelError(
        f"{checkpoint.folder}: its head is for {checkpoint.head.kind}, and token classification (ner) is needed here. "
        f"Choose a ...ForTokenClassification checkpoint, or name this one in a task: [tasks.NAME] source = ..."
    )


def _weight_files(folder: Path, architecture: str) -> dict[str, Path]:
    """The file of each weight, from the index or from the single file."""
    try:
        if (folder / SINGLE_FILE).is_file():  # an index beside it is left over from an earlier save
            with safe_open(folder / SINGLE_FILE, framework="np") as file:
                files = dict.fromkeys(file.keys(), folder / SINGLE_FILE)
        elif (folder / SHARD_INDEX).is_file():
            shards = json.loads((folder / SHARD_INDEX).read_bytes())["weight_map"]
            files = {str(name): folder / str(file) for name, file in shards.items()}
        else:
            raise ModelError(_no_weights(folder, architecture))
    except (OSError, SafetensorError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise ModelError(
            f"{folder}: the weights cannot be read: {error}. Copy the folder again, completely "
            f"(from a clone: `git lfs pull`)."
        ) from error
    missing = sorted({path.name for path in files.values() if not path.is_file() or path.parent != folder})
    if missing:
        raise ModelError(f"{folder}: weights missing: {', '.join(missing)}. Copy the folder again, completely.")
    return files


def _no_weights(folder: Path, architecture: str) -> str:
    if any(folder.glob("pytorch_model*.bin")):
        return (
            f"{folder}: the weights are a pickle (pytorch_model.bin), which runs code when opened, so we do not. "
            f"Convert them once, where PyTorch is: "
            f"{architecture}.from_pretrained(...).save_pretrained(...)."
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


_READABLE_BY_OTHERS = 0o044


def refuse_outside_links(folder: Path) -> None:
    """Raise ModelError if a link in `folder` points outside. In the hub's cache, links to its blobs are allowed.

    The folder itself may be a link.
    """
    root = folder.resolve()
    # ~/.cache/huggingface/hub/models--owner--name/snapshots/COMMIT/config.json -> ../../blobs/DIGEST
    in_hub_cache = root.parent.name == "snapshots" and root.parents[1].name.startswith("models--")
    allowed = [root, *([root.parents[1] / "blobs"] if in_hub_cache else [])]
    for place, folders, files in os.walk(root):
        for path in (Path(place, name) for name in (*folders, *files)):
            if path.is_symlink() and not any(_target(path).is_relative_to(each) for each in allowed):
                found = folder / path.relative_to(root)
                raise ModelError(
                    f"{found} is a link to a file outside the model's folder and is not followed. "
                    f"If you trust its origin, copy the folder with the targets of its links (`cp -rL`)."
                )


def refuse_unreadable(folder: Path) -> None:
    """Raise ModelError if this user may not read all of `folder`. Some libraries call such a file missing.

    What is hidden is not the model's, nor is the `lost+found` of a volume, which only root may read. A link that leads
    nowhere denies nothing: whoever needs its file says that it is missing.
    """
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".") and name != "lost+found"]
        wanted = {**dict.fromkeys(folders, os.R_OK | os.X_OK), **dict.fromkeys(files, os.R_OK)}
        for name, right in wanted.items():
            path = Path(place, name)
            if name.startswith(".") or os.access(path, right):
                continue
            try:
                path.stat()
            except FileNotFoundError:
                continue
            except PermissionError:
                pass  # of the folder that a link leads to
            raise ModelError(
                f"{path}: this user may not read it. Let every user read the model (`chmod -R a+rX {folder}`), or run as "
                f"its owner."
            )


def shared_mode(files: Iterable[Path]) -> int:
    """The mode of a file made from `files`: others may read it if they may read all of them."""
    mode = 0o644
    for path in files:
        mode &= 0o600 | (path.stat().st_mode & _READABLE_BY_OTHERS)
    return mode


def _target(link: Path) -> Path:
    try:
        return link.resolve()
    except (OSError, RuntimeError) as error:  # a loop
        raise ModelError(f"{link} is a link that leads nowhere: {error}") from error
