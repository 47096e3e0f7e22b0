"""Makes every text ordinary text: no article can contain a special token.

With `encode_special_tokens` the library does not look for `</s>` before it splits a text. But `</s>` is also a piece of
SentencePiece models (XLM-RoBERTa, CamemBERT), which still find it, and so does any model whose words may contain such a
name. For these models, the special tokens get names that nobody can guess; their ids stay.
"""

from __future__ import annotations

import json
import secrets
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from tokenizers import Tokenizer

_AROUND = ("{}", "{}a", "a{}a", "a {} a")
"""Positions of a name in a text: alone, at the start of a word, inside a word, between words."""


def text_only(backend: Tokenizer, specials: Collection[str]) -> Tokenizer:
    """This tokenizer, or another one with the same ids, that never encodes a text as one of `specials`.

    The token for unknown words is an exception: every unknown word is encoded as it.
    """
    backend.encode_special_tokens = True
    names = {token.content for token in backend.get_added_tokens_decoder().values() if token.special}.union(specials)
    return _rename(backend, names) if _may_come_from_text(backend, names) else backend


def _may_come_from_text(backend: Tokenizer, names: Collection[str]) -> bool:
    """Whether an article that contains one of these names could be encoded as that token."""
    unknown = getattr(backend.model, "unk_token", None)
    ids = {backend.token_to_id(name) for name in names if name != unknown}
    texts = [around.format(name) for name in names for around in _AROUND]
    return any(ids & set(each.ids) for each in backend.encode_batch(texts, add_special_tokens=False))


def _rename(backend: Tokenizer, names: Collection[str]) -> Tokenizer:
    """The same tokenizer, in which these tokens have names that no text contains."""
    from tokenizers import Tokenizer  # noqa: PLC0415  slow, and loaded already

    content = json.loads(backend.to_str())
    # Random, because the author of an article could read fixed names here.
    new = {name: f"{secrets.token_hex(16)} {name}" for name in names}
    for token in content["added_tokens"]:
        token["content"] = new.get(token["content"], token["content"])
    content["model"] |= _renamed_model(content["model"], new)
    renamed = Tokenizer.from_str(json.dumps(content, ensure_ascii=False))
    renamed.encode_special_tokens = True
    return renamed


def _renamed_model(model: Mapping[str, Any], new: Mapping[str, str]) -> dict[str, Any]:
    """The parts of tokenizer.json's model that contain names. Unigram's vocabulary is a list, the others' a mapping."""
    vocabulary, unknown = model["vocab"], model.get("unk_token")
    changed: dict[str, Any] = {}
    if isinstance(vocabulary, list):
        changed["vocab"] = [[new.get(name, name), score] for name, score in vocabulary]
    else:
        changed["vocab"] = {new.get(name, name): number for name, number in vocabulary.items()}
    if unknown is not None:
        changed["unk_token"] = new.get(unknown, unknown)
    if "merges" in model:
        changed["merges"] = [pair for pair in model["merges"] if new.keys().isdisjoint((*pair, "".join(pair)))]
    return changed
