"""Downloads a model by its hub id into the hub client's cache: only safetensors, configuration and tokenizer files.

It downloads nothing that runs code when it is opened: no pickle, no Python file. Offline, the client's cache is enough.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from enricher.errors import ModelError
from enricher.worker.inference.checkpoint.folder import SHARD_INDEX, SINGLE_FILE, TOKENIZER_FILES

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
ALLOWED = (
    "config.json",
    SINGLE_FILE,
    "model-*-of-*.safetensors",
    SHARD_INDEX,
    *TOKENIZER_FILES,
    "modules.json",  # these four describe sentence embeddings
    "*_Pooling/config.json",
    "sentence_bert_config.json",
    "config_sentence_transformers.json",
    "enricher.json",
    "README.md",
    "LICENSE*",
)
"""The files that are downloaded: those that inference/checkpoint and inference/tokenizer read, and the licence."""


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """A folder with a model, and its commit if it came from the hub."""

    folder: Path
    revision: str | None = None


def fetch(source: str, revision: str | None) -> ModelFolder:
    """The folder `source`, or for a hub id the hub's copy of it. Blocks for a download. Raises ModelError."""
    if Path(source).exists() or not _HUB_ID.fullmatch(source):
        return ModelFolder(Path(source))
    from huggingface_hub import snapshot_download  # noqa: PLC0415  an HTTP client, which a folder does not need

    try:
        folder = snapshot_download(source, revision=revision, allow_patterns=list(ALLOWED))
    except Exception as error:  # errors of the hub's client, its HTTP client and the system share no base class
        message = (
            f"{source} is not a folder here and cannot be fetched from the hub: {_first_line(error)}. Without a network, "
            f"name a folder (`hf download {source} --local-dir FOLDER` makes one on another machine), or copy the hub's "
            f"cache."
        )
        raise ModelError(message) from error
    # The client's cache keeps one folder per commit, named after it.
    return ModelFolder(Path(folder), revision=Path(folder).name)


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else 'no reason given'}"
