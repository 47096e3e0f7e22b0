"""Whether two checkpoints have the same encoder, so that one worker can serve the heads of both.

Two encoders are the same if everything that hidden states depend on is bit-identical: weights, configuration, and the
tokenizer's files. Heads and poolers (which belong to a head) are ignored, and so is what the tokenizer's files say about
padding, truncation and their own origin, because we cut and pad the windows.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from enricher.errors import ModelError
from enricher.worker.inference.checkpoint.folder import TOKENIZER_FILES, Checkpoint, OpenFiles
from enricher.worker.inference.checkpoint.onnx_model import OnnxModel

_HEAD_KEYS = {
    *("architectures", "id2label", "problem_type"),
    *("classifier_activation", "classifier_bias", "classifier_pooling", "pooler_hidden_act", "pooler_hidden_size"),
}
"""The keys of the configuration that say nothing about the encoder."""
_IDLE_KEYS = {
    "tokenizer.json": {"padding", "truncation"},
    "tokenizer_config.json": {
        *("backend", "is_local", "local_files_only", "name_or_path", "special_tokens_map_file", "tokenizer_file"),
        *("max_length", "stride", "truncation_side", "truncation_strategy"),
        *("model_input_names", "pad_to_multiple_of", "pad_token_type_id", "padding_side", "processor_class"),
    },
}
"""The keys of the tokenizer's files on which no token depends. `model_max_length` is not among them: it limits windows."""


def first_difference(first: Checkpoint, second: Checkpoint) -> str | None:
    """The first file or weight in which two encoders differ, as a clause; None if they are bit-identical.

    Weights are compared as float32 numbers, in the order of the graph, and have the names of their family. If nothing
    differs, all weights of both are read, one at a time. Raises ModelError. A model that is ONNX already has no weights to
    compare, so it differs from every other.
    """
    for each in (first, second):
        if isinstance(each, OnnxModel):
            return f"{each.onnx_path.name}, a model that is ONNX already, runs by itself"
    if first.folder == second.folder:
        return None
    # Weights have the same names once the configurations are equal.
    pairs = zip(_parts(first), _parts(second), strict=False)
    return next((f"{name} differs" for (name, ours), (_, theirs) in pairs if ours != theirs), None)


def encoder_digest(checkpoint: Checkpoint) -> str:
    """sha256 (hex) over encoder weights, encoder configuration and tokenizer files.

    Equal digests mean that `first_difference` finds none, except that a model that is ONNX already has its own digest.
    Reads all weights of the encoder, one at a time. Raises ModelError.
    """
    if isinstance(checkpoint, OnnxModel):
        return checkpoint.digest
    (_, configuration), *files = _parts(checkpoint)
    return hashlib.sha256(
        "".join([configuration, *(f"\n{name}\0{digest}" for name, digest in files)]).encode()
    ).hexdigest()


def _parts(checkpoint: Checkpoint) -> Iterator[tuple[str, str]]:
    """The parts on which hidden states depend: the configuration, then digests of tokenizer files and weights."""
    config = checkpoint.config
    values = {
        **config.model_dump(exclude=_HEAD_KEYS),
        "embedding_size": config.embedding_size or config.hidden_size,
    }
    yield "config.json", repr(sorted(values.items()))
    for name in TOKENIZER_FILES:
        content = json.dumps(_content(checkpoint.folder / name), sort_keys=True)
        yield name, hashlib.sha256(content.encode()).hexdigest()
    opened: OpenFiles = {}
    for name in checkpoint.family.encoder_weights(config):
        value = np.ascontiguousarray(checkpoint.weight(name, opened))
        yield name, hashlib.sha256(str(value.shape).encode() + value.tobytes()).hexdigest()


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
