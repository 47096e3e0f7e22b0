"""Whether two checkpoints have the same encoder, so that one pass can serve the heads of both.

Two encoders are the same if everything that hidden states depend on is bit-identical: weights, configuration, and the
tokenizer's files. Heads and poolers (which belong to a head) are ignored, and so is what the tokenizer's files say about
padding, truncation and their own origin, because we cut and pad the windows.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from typing import TYPE_CHECKING

import numpy as np

from enricher.errors import ModelError
from enricher.worker.inference.checkpoint.folder import TOKENIZER_FILES, Checkpoint, OpenFiles
from enricher.worker.inference.checkpoint.onnx_folder import OnnxModel
from enricher.worker.inference.checkpoint.weight_names import encoder_weights

if TYPE_CHECKING:
    from pathlib import Path

_HEAD_KEYS = {"architectures", "id2label", "problem_type"}
"""The keys of the configuration that say nothing about the encoder."""
_SHOWN_CHARS = 60
_IDLE_KEYS = {
    "tokenizer.json": {"padding", "truncation"},
    "tokenizer_config.json": {
        *("backend", "is_local", "local_files_only", "name_or_path", "special_tokens_map_file", "tokenizer_file"),
        *("max_length", "stride", "truncation_side", "truncation_strategy"),
        *("model_input_names", "pad_to_multiple_of", "pad_token_type_id", "padding_side", "processor_class"),
    },
}
"""The keys of the tokenizer's files on which no token depends. `model_max_length` is not one of them: it limits windows."""


def first_difference(first: Checkpoint, second: Checkpoint) -> str | None:
    """The first key of config.json, file or weight in which two encoders differ; None if they are bit-identical.

    Weights are compared as the float32 numbers that they mean, in the order of the graph, and named as the family calls
    them. Reads all weights of both, one at a time, if nothing differs. Raises ModelError. A model that is ONNX already has
    no weights to compare, so it differs from every other.
    """
    for each in (first, second):
        if isinstance(each, OnnxModel):
            return each.onnx_path.name
    ours, theirs = (_configuration(each) for each in (first, second))
    for key, value in ours.items():
        if value != theirs[key]:
            return f"{key} in config.json ({value}, {theirs[key]})"
    for name in TOKENIZER_FILES:
        if different := _difference(first.folder / name, second.folder / name):
            return different
    opened: OpenFiles = {}
    names = encoder_weights(first.config, first.family)
    return next((name for name in names if _bytes(first, name, opened) != _bytes(second, name, opened)), None)


def encoder_digest(checkpoint: Checkpoint) -> str:
    """sha256 (hex) over encoder weights, encoder configuration and tokenizer files.

    Equal digests mean that `first_difference` finds none, except that a model that is ONNX already has its own digest.
    Reads all weights of the encoder, one at a time. Raises ModelError.
    """
    if isinstance(checkpoint, OnnxModel):
        return checkpoint.digest
    whole = hashlib.sha256(repr(sorted(_configuration(checkpoint).items())).encode())
    for name in TOKENIZER_FILES:
        content = json.dumps(_content(checkpoint.folder / name), sort_keys=True).encode()
        whole.update(f"\n{name}\0{hashlib.sha256(content).hexdigest()}".encode())
    opened: OpenFiles = {}
    for name in encoder_weights(checkpoint.config, checkpoint.family):
        whole.update(f"\n{name}\0{hashlib.sha256(_bytes(checkpoint, name, opened)).hexdigest()}".encode())
    return whole.hexdigest()


def _configuration(checkpoint: Checkpoint) -> dict[str, object]:
    values = checkpoint.config.model_dump(exclude=_HEAD_KEYS)
    return {**values, "embedding_size": checkpoint.config.embedding_size or checkpoint.config.hidden_size}


def _bytes(checkpoint: Checkpoint, name: str, opened: OpenFiles) -> bytes:
    """The shape and the float32 values of a weight."""
    value = np.ascontiguousarray(checkpoint.weight(name, opened))
    return str(value.shape).encode() + value.tobytes()


def _difference(first: Path, second: Path) -> str | None:
    """The name of the file, and the key if both are JSON objects, in which two tokenizers differ; None if they do not."""
    if first.is_file() and second.is_file() and first.read_bytes() == second.read_bytes():
        return None
    ours, theirs = _content(first), _content(second)
    if ours == theirs:
        return None
    if isinstance(ours, dict) and isinstance(theirs, dict):
        keys = [key for key in {**ours, **theirs} if ours.get(key) != theirs.get(key)]
        if keys:
            return f"{keys[0]} in {first.name} ({_show(ours, keys[0])}, {_show(theirs, keys[0])})"
    return first.name


def _content(path: Path) -> object:
    """A file about tokens: the values of a JSON object, else the digest of the file; None if it is missing."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ModelError(f"{path}: this file of the tokenizer cannot be read: {error}") from error
    with contextlib.suppress(ValueError):
        if path.suffix == ".json" and isinstance(values := json.loads(content), dict):
            return {key: value for key, value in values.items() if key not in _IDLE_KEYS.get(path.name, ())}
    return hashlib.sha256(content).hexdigest()


def _show(values: dict[str, object], key: str) -> str:
    """The value as JSON for a message, or `...` if it is long."""
    text = json.dumps(values[key], ensure_ascii=False) if key in values else "absent"
    return text if len(text) <= _SHOWN_CHARS else "..."
