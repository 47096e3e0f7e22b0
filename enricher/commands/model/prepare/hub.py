"""A hub id -> a folder in the hub client's own cache. Only safetensors, configuration and tokenizer files are asked for.

Nothing that runs code when opened is downloaded: no pickle, no Python file. Offline, what the cache has is enough.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from enricher.errors import ModelError

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
ALLOWED = (
    "config.json",
    "model.safetensors",
    "model-*-of-*.safetensors",
    "model.safetensors.index.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    "sentencepiece.bpe.model",
    "spiece.model",
    "enricher.json",
    "README.md",
    "LICENSE*",
)
"""What is downloaded: what checkpoint.py and tokenizer.py read, and the licence."""


@dataclass(frozen=True, slots=True)
class Source:
    """A folder with a model, and the commit that it is, where it came from the hub."""

    folder: Path
    revision: str | None = None


def fetched(source: str, revision: str | None) -> Source:
    """The folder of `source`: itself, or for a hub id what the hub has. Blocks for a download. Raises ModelError."""
    if Path(source).exists() or not _HUB_ID.fullmatch(source):
        return Source(Path(source))
    from huggingface_hub import snapshot_download  # noqa: PLC0415  it imports an HTTP client

    try:
        folder = snapshot_download(source, revision=revision, allow_patterns=list(ALLOWED))
    except Exception as error:  # its own kinds, the HTTP client's and the system's share no base class
        message = (
            f"{source} is no folder here, and cannot be had from the hub: {_first_line(error)}. Without a network, give "
            f"a folder (`hf download {source} --local-dir FOLDER` makes one where there is one), or copy the hub's cache."
        )
        raise ModelError(message) from error
    # The client's cache keeps a folder per commit, by that name.
    return Source(Path(folder), revision=Path(folder).name)


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else 'no reason given'}"
