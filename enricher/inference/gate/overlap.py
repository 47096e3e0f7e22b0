"""Sentences that two sets of texts share, whatever their files, layout, case or punctuation.

A quantised model must not be judged by the text that it was calibrated on, or its report would be too good.
"""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

LEAST_CHARS = 24
"""Letters and digits. Shorter sentences ("He declined to comment.") occur in unrelated texts."""
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])|\n+")
_NOT_WORDS = re.compile(r"[\W_]+")


def sentences_of(texts: Iterable[str]) -> frozenset[int]:
    """The sentences of `texts` as hashes, which are valid in this process only."""
    return frozenset(sentence for text in texts for sentence in _sentences(text))


def shares_sentence(text: str, sentences: frozenset[int]) -> bool:
    """True if a sentence of `text` is among `sentences`."""
    return any(sentence in sentences for sentence in _sentences(text))


def _sentences(text: str) -> Iterator[int]:
    for part in _SENTENCE_END.split(text):
        letters = _NOT_WORDS.sub("", unicodedata.normalize("NFKC", part).casefold())
        if len(letters) >= LEAST_CHARS:
            yield hash(letters)
