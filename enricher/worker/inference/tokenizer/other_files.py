"""Refuses a folder whose tokenizer would read other files than those that the checkpoint's digest counts.

Values of its JSON files become arguments of classes of transformers, and some of these are paths, which are opened as they
stand, wherever they lead (`PreTrainedTokenizerBase._from_pretrained`).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from enricher.errors import ModelError
from enricher.worker.inference.checkpoint.configuration import read_object
from enricher.worker.inference.checkpoint.folder import TOKENIZER_FILES

if TYPE_CHECKING:
    from collections.abc import Mapping

_CONFIGURATION, _SPECIAL_TOKENS = "tokenizer_config.json", "special_tokens_map.json"
_PLACES = frozenset({"gguf_file", "init_inputs", "merges", "merges_file", "tokenizer_object", "vocab", "vocab_file"})
"""Keys that name files, or contain what should come from one."""
_VERSIONS = "fast_tokenizer_files"
"""The key that names several tokenizer.json, one for each version of transformers."""
_IDLE = frozenset({
    "_name_or_path", "added_tokens_file", "full_tokenizer_file", "name_or_path", "special_tokens_map_file", "tokenizer_file",
})  # fmt: skip
"""Keys that say where the tokenizer came from. transformers takes the folder's own files instead."""
_TEXTS = frozenset({"added_tokens_decoder", "auto_map", "chat_template", "extra_special_tokens", "response_schema"})
"""Keys with texts in which a slash means nothing. The code that `auto_map` names is never run."""


def refuse_other_files(folder: Path, *, any_class: bool) -> None:
    """Raise ModelError if one of the tokenizer's JSON files names a file, or may do so. Reads these files only.

    `any_class`: tokenizer_config.json chooses the class, which may have paths of any name among its arguments.
    """
    for key, value in _values(folder / _CONFIGURATION).items():
        if key == _VERSIONS and set(_texts(value)) <= {"tokenizer.json"}:
            continue
        named = key in _PLACES or key == _VERSIONS or key.endswith(("_file", "_files"))
        unknown = any_class and not _is_text(key) and _has_path(value)
        if value and key not in _IDLE and (named or unknown):
            raise _refusal(folder / _CONFIGURATION, key)
    for key, value in _values(folder / _SPECIAL_TOKENS).items():
        # Unlike those of the configuration, these override the folder's own files.
        if value and not key.endswith(("_token", "_tokens")):
            raise _refusal(folder / _SPECIAL_TOKENS, key)


def refuse_read_files(tokenizer: Any, folder: Path) -> None:  # noqa: ANN401  transformers' own classes are untyped
    """Raise ModelError if a loaded tokenizer was made from a file that the digest does not count."""
    for key, value in tokenizer.init_kwargs.items():
        if not isinstance(value, str) or not key.endswith("_file") or not Path(value).is_file():
            continue
        if Path(value).parent != folder or Path(value).name not in TOKENIZER_FILES:
            raise ModelError(
                f"{folder}: the tokenizer is made from {Path(value).name}, and only {', '.join(TOKENIZER_FILES)} are read. "
                f"AutoTokenizer.from_pretrained(...).save_pretrained(...) writes a tokenizer.json."
            )


def _values(path: Path) -> Mapping[str, Any]:
    return read_object(path) if path.is_file() else {}


def _is_text(key: str) -> bool:
    return key in _TEXTS or key.endswith(("_token", "_tokens"))


def _has_path(value: object) -> bool:
    return any("/" in text or "\\" in text for text in _texts(value))


def _texts(value: object) -> list[str]:
    """The texts of a JSON value, at any depth, keys included."""
    found, left = list[str](), [value]
    while left:
        each = left.pop()
        if isinstance(each, str):
            found.append(each)
        elif isinstance(each, dict):
            left += [*each, *each.values()]
        elif isinstance(each, list):
            left += each
    return found


def _refusal(path: Path, key: str) -> ModelError:
    return ModelError(
        f"{path}: {key!r} names a file, or may do so, which the tokenizer would read and the model's digest does not count: "
        f"remove the key. Everything that a tokenizer needs is in {', '.join(TOKENIZER_FILES)}."
    )
