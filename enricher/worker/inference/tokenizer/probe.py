"""Refuses a tokenizer that loses characters of a text: it would lose words, and nothing would show it.

RobBERT's pre-tokenizer puts a space before every word, and its post-processor removes that space from the token's range of
characters, where it is not: `Amsterdam` begins at its `m`, and a word of one letter is nowhere.
"""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING

from enricher.errors import ModelError
from enricher.worker.rules.words import chunk_around

if TYPE_CHECKING:
    from pathlib import Path

    from tokenizers import Tokenizer

SPACES = ("\u2581", "\u0120")
"""How SentencePiece and byte-level BPE write a token that is one space."""
_TEXT = (
    "Amsterdam (A. van Dijk) said: \"I saw O'Brien\" \u2013 'U.S.' & AT&T, 3.5 % of $1,234\r\nE y o a 7\u00a0km! \u2116 1 "
    "\u201eZoe\u0308\u201c \u00abS\u00e3o Paulo\u00bb na\u00efve q\u0307 \u0130stanbul \u00df \ufb01 \u00bd \u2026\n\n"
    "\u0410\u043d\u043d\u0430 \u0432 \u041c\u043e\u0441\u043a\u0432\u0435 \u0391\u03b8\u03ae\u03bd\u03b1 \u05ea\u05dc "
    "\u0627\u0644\u0631\u064a\u0627\u0636 \u0939\u093f\u0928\u094d\u0926\u0940 \u0e44\u0e17\u0e22 \ud55c\uad6d\t"
    "\u6771\u4eac \u5728 \u5317\u4eac\u3002\u30c8\u30e8\u30bf \U0001f642 \U0001f469\u200d\U0001f680 x\u200by @anna #Rom https://a.b/c?d=1"
)
"""All kinds of characters: scripts, digits, quotes, marks, line breaks, emoji; words of one letter, and capitals."""
_SEEN = frozenset("LNPS")
"""Categories of letters, numbers, punctuation and symbols. Tokenizers may drop or join marks and format characters."""


def require_characters(backend: Tokenizer, folder: Path) -> None:
    """Raise ModelError if the tokenizer loses characters, and taking another post-processor does not help.

    If it helps, the tokenizer is changed: its post-processor must not be needed for special tokens.
    """
    try:
        text, lost = _TEXT, _lost_chars(backend, _TEXT)
        if lost:
            _keep_spaces(backend)
            lost = _lost_chars(backend, text)
        if lost:
            text = _known_text(backend)
            lost = _lost_chars(backend, text)
    except Exception as error:
        raise ModelError(
            f"{folder}: its tokenizer fails at ordinary text: {error}. The model in tokenizer.json must have a token for "
            f"unknown words."
        ) from error
    if lost:
        start, end = chunk_around(text, lost[0])
        raise ModelError(
            f"{folder}: its tokenizer loses characters, so names would be missed: no token has {text[lost[0]]!r} of "
            f"{text[start:end]!r}, and {len(lost)} of {len(text)} characters of a test are lost so. The normalizer or the "
            f"pre_tokenizer in tokenizer.json drops what the vocabulary knows: take the file that the model was trained "
            f"with, as AutoTokenizer.from_pretrained(...).save_pretrained(...) writes it."
        )


def _keep_spaces(backend: Tokenizer) -> None:
    """Leave a token the space before it, which does no harm: spaces are in no word."""
    from tokenizers.processors import ByteLevel  # noqa: PLC0415  slow, and loaded already

    backend.post_processor = ByteLevel(trim_offsets=False)


def _known_text(backend: Tokenizer) -> str:
    """The text without characters that make no token alone: they are dropped on purpose, or the vocabulary lacks them.

    Beside one that it lacks, a BPE model without a token for unknown ones may give the characters of a word wrong places.
    """
    unknown = [char for char in set(_TEXT) if not char.isspace() and not _ranges(backend, char)]
    return _TEXT.translate(dict.fromkeys(map(ord, unknown)))


def _lost_chars(backend: Tokenizer, text: str) -> list[int]:
    """The places of the characters that no token has."""
    found = {char for start, end in _ranges(backend, text) for char in range(start, end)}
    return [at for at, char in enumerate(text) if unicodedata.category(char)[0] in _SEEN and at not in found]


def _ranges(backend: Tokenizer, text: str) -> list[tuple[int, int]]:
    """The characters of each token that is not only a space: such a token may claim the first one of a word."""
    encoding = backend.encode(text, add_special_tokens=False)
    return [chars for token, chars in zip(encoding.tokens, encoding.offsets, strict=True) if token not in SPACES]
