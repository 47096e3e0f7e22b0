"""Finds sentences, paragraphs, lines and whole texts that two sets of texts share, ignoring case, spaces and punctuation.

A quantised model must not be judged by the text that it was calibrated on, or its report would be too good. This finds
copies, also wrapped ones. It finds no paraphrase, no part of a sentence and, within a longer text, no short sentence.
"""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

LEAST_CHARS = 24
"""The least letters and digits of a sentence that counts: shorter ones ("He declined to comment.") occur in unrelated texts.
Whole texts may be shorter."""
LEAST_CHARS_CJK = 8
"""The same for scripts in which a letter is a syllable or a word."""
_CLOSING = r"""["'”’»」』）)\]]*"""
_SENTENCE_END = re.compile(rf"(?<=[.!?]){_CLOSING}\s+|(?<=[。！？]){_CLOSING}")
_PARAGRAPH_END = re.compile(r"\n\s*\n")
_NOT_WORDS = re.compile(r"[\W_]+")
_CJK = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")


def sentences_of(texts: Iterable[str]) -> frozenset[int]:
    """The sentences of `texts` as hashes, which are valid in this process only."""
    return frozenset(sentence for text in texts for sentence in _sentences(text))


def shares_sentence(text: str, sentences: frozenset[int]) -> bool:
    """True if a sentence of `text`, or the whole of it, is among `sentences`."""
    return any(sentence in sentences for sentence in _sentences(text))


def _sentences(text: str) -> Iterator[int]:
    if whole := _letters(text):
        yield hash(whole)
    for part in _parts(text):
        letters = _letters(part)
        if len(letters) >= (LEAST_CHARS_CJK if _CJK.search(letters) else LEAST_CHARS):
            yield hash(letters)


def _parts(text: str) -> Iterator[str]:
    """Paragraphs and lines, and the sentences of both: a line break may be in a wrapped sentence, or after a headline."""
    for block in (*_PARAGRAPH_END.split(text), *text.splitlines()):
        yield block
        yield from _SENTENCE_END.split(block)


def _letters(text: str) -> str:
    return _NOT_WORDS.sub("", unicodedata.normalize("NFKC", text).casefold())
