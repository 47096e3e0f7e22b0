"""Sentence embeddings as sentence-transformers saves them: an encoder, its pooling, and maybe a normalisation.

What the encoder's folder says beside its weights is read here. Modules that would change the vector, and that we do not
build, are refused.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from enricher.errors import ModelError
from enricher.worker.inference.checkpoint.configuration import MODULES_FILE, POOLING_FILE, read_object
from enricher.worker.inference.checkpoint.head import HeadSpec, Reads

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from enricher.worker.inference.checkpoint.configuration import EncoderConfig

_TRANSFORMER_FILE = "sentence_bert_config.json"
_PROMPTS_FILE = "config_sentence_transformers.json"
_MODES: Mapping[str, Reads] = {"cls": "first", "mean": "mean"}
"""The pooling modes that we build, as newer releases name them."""
_FLAG = "pooling_mode_{}"
_FLAGS = {"cls_token": "cls", "mean_tokens": "mean"}
"""The same as older releases name them, after `pooling_mode_`."""


def vector_head(folder: Path, config: EncoderConfig) -> tuple[HeadSpec, tuple[Path, ...]]:
    """The head, and the files that say so. Raises ModelError if vectors would differ from sentence-transformers'."""
    pooling_file, normalised = _modules(folder)
    pooling = read_object(folder / pooling_file)
    reads = _reads(folder / pooling_file, pooling)
    width = pooling.get("word_embedding_dimension", pooling.get("embedding_dimension", config.hidden_size))
    if width != config.hidden_size:
        raise ModelError(
            f"{folder / pooling_file}: it pools vectors of {width} numbers, and config.json says {config.hidden_size}. "
            f"Copy the folder again, completely."
        )
    _require_plain_text(folder)
    names = (MODULES_FILE, pooling_file, _TRANSFORMER_FILE, _PROMPTS_FILE)
    files = tuple(folder / name for name in names if (folder / name).is_file())
    return _head(reads, config.hidden_size, normalised=normalised), files


def _head(reads: Reads, width: int, *, normalised: bool) -> HeadSpec:
    return HeadSpec("embedding", (), multi_label=False, reads=reads, normalised=normalised, dimensions=width)


def _modules(folder: Path) -> tuple[str, bool]:
    """The file that configures the pooling, and whether vectors are normalised."""
    path = folder / MODULES_FILE
    if not path.is_file():
        return POOLING_FILE, False
    try:
        entries = json.loads(path.read_bytes())
        modules = [(str(each["type"]).rpartition(".")[2], str(each["path"])) for each in entries]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(f"{path}: it does not list modules: {error}. Copy the folder again, completely.") from error
    kinds = [kind for kind, _ in modules]
    if kinds not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        raise ModelError(
            f"{path}: its modules are {', '.join(kinds)}; only a Transformer, then Pooling, then maybe Normalize are built"
            + (" (a Dense layer behind pooling is not)" if "Dense" in kinds else "")
            + ". Choose a model of these, because its vectors would be others."
        )
    (_, encoder), (_, pooling) = modules[:2]
    if encoder not in {"", "."}:
        raise ModelError(
            f"{path}: the encoder is in {encoder}, and not beside modules.json: copy the files of {encoder} there, and "
            f'write "path": "" for it.'
        )
    file = f"{pooling}/config.json"
    if ".." in file or file.startswith("/") or not (folder / file).is_file():
        raise ModelError(f"{path}: there is no {file} for its pooling. Copy the folder again, completely.")
    return file, kinds[-1] == "Normalize"


def _reads(path: Path, pooling: Mapping[str, Any]) -> Reads:
    """What the pooling reads. Raises ModelError unless it is one of `_MODES` alone."""
    named = pooling.get("pooling_mode")
    on = [named] if isinstance(named, str) else list(named or ())
    for key, value in pooling.items():
        flag = key.removeprefix(_FLAG.format(""))
        if value is True and flag != key:
            on.append(_FLAGS.get(flag, flag))
    modes = list(dict.fromkeys(map(str, on)))
    if len(modes) == 1 and modes[0] in _MODES:
        return _MODES[modes[0]]
    raise ModelError(
        f"{path}: its pooling is {' and '.join(modes) or 'not named'}; only the mean of all tokens "
        f"(pooling_mode_mean_tokens) and the first token (pooling_mode_cls_token) are built, one alone. "
        f"Choose a model with one of them."
    )


def _require_plain_text(folder: Path) -> None:
    """Raise ModelError if sentence-transformers would change the text before its tokenizer sees it."""
    transformer, prompts = (_if_present(folder / name) for name in (_TRANSFORMER_FILE, _PROMPTS_FILE))
    if transformer.get("do_lower_case") is True:
        raise ModelError(
            f'{folder / _TRANSFORMER_FILE}: "do_lower_case" lowers the text before the tokenizer, which is not built. '
            f"Choose a model whose tokenizer does that, and set it to false."
        )
    name = prompts.get("default_prompt_name")
    texts = prompts.get("prompts")
    if isinstance(texts, dict) and texts.get(name):
        raise ModelError(
            f"{folder / _PROMPTS_FILE}: its default prompt {name!r} would be put before every text, which is not built. "
            f'Set "default_prompt_name" to null for vectors of the articles alone.'
        )


def _if_present(path: Path) -> Mapping[str, Any]:
    return read_object(path) if path.is_file() else {}
