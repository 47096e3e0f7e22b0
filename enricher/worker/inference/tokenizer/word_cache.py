"""Tokens of the words that many texts have: the library tokenizes each of them once, and not in every article.

Here a word is the text between two spaces, with its punctuation. With most tokenizers it has the same tokens in every
text: they split at white space before the model reads anything, and no normalizer that `splits_at_spaces` accepts looks
beyond a space. The tokens of a text are then those of its words, moved to where the words are. Of news that it has not
seen, nine words in ten are known after a thousand articles.

The library gets the unknown words as one text, so it sees each between two spaces, as in an article.

What a token is does not belong here. A text with a word that is not kept is left to the library, and so are texts
without spaces (Chinese), very long ones and those that the library refuses.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any
from unicodedata import category

import numpy as np
from tokenizers import Encoding, Tokenizer, models, processors

from enricher.worker.inference.tokenizer.loading import SPACES
from enricher.worker.records import Int32Array

MEAN_CHARS = 12
"""Texts with longer words on average are not taken: Chinese, whose sentences are words here and hardly occur twice."""
LONGEST_CHARS = 64
"""Longer words are not kept: they hardly occur twice, and an article could make them as long as it likes."""
LONGEST_TOKENS = 32
"""The same limit on tokens, as one character can become several words: U+FDFA is four."""
MOST_WORDS = 65_536
"""The most words of a generation: 15 MB of ordinary ones, 55 MB of the largest. The one before it is kept too, and gives the
newer one every word that is read again."""
_OTHER_SPACES = "\n\r\t\u00a0"
"""Tokenizers split at these as at a space."""
_EXTENDING = frozenset("\u0e33\u0eb3\uff9e\uff9f\U0001f3fb\U0001f3fc\U0001f3fd\U0001f3fe\U0001f3ff")
"""Characters that belong to the one before them, beside marks: Unicode's Grapheme_Cluster_Break."""
_TOKEN_BYTES = 3 * np.dtype(np.int32).itemsize
"""One token of a word: its id, and its range of characters within the word."""


class PlacedSpans:
    """Positions of tokens as arrays, which the loop drops in no time. Dropping the library's encoding costs it 0.1 ms."""

    __slots__ = ("_ends", "_starts")

    def __init__(self, starts: Int32Array, ends: Int32Array) -> None:
        # Indexing a memoryview gives an int, and faster than an array.
        self._starts = starts.data
        self._ends = ends.data

    def chars_of(self, token: int) -> tuple[int, int]:
        """The token's range, half-open, in Unicode code points of the original text."""
        return self._starts[token], self._ends[token]


class WordCache:
    """The words of a tokenizer for which `splits_at_spaces` is true. Several threads may call it at once."""

    def __init__(self, encode: Callable[[str], Encoding | None], spaces: Collection[int]) -> None:
        """`encode` returns None for a text that it refuses. `spaces`: ids of tokens that are only a space."""
        self._encode = encode
        self._spaces = [*spaces]
        self._known, self._older = {"": b""}, dict[str, bytes]()

    def tokenize(self, texts: Sequence[str]) -> list[tuple[Int32Array, PlacedSpans] | None]:
        """Ids and positions of the tokens of each text; None for a text that the library must tokenize."""
        # Another thread may replace the mappings; no thread takes a word out of these.
        known, older = self._known, self._older
        unknown, words_of = set[str](), list[list[str]]()
        for text in texts:
            spaced = text
            for separator in _OTHER_SPACES:
                spaced = spaced.replace(separator, " ")  # a translation table takes thirty times as long
            words = spaced.split(" ")
            words_of.append(words)
            # Other texts are left to the library, and their words are not worth learning.
            if len(text) <= MEAN_CHARS * len(words):
                new = set(words).difference(known)
                if all(map(_may_be_kept, new)):
                    unknown |= new
        if unknown:
            known.update([(word, older[word]) for word in unknown if word in older])
            known.update(self._learn([*unknown.difference(older)]))
            if len(known) > MOST_WORDS:
                self._known, self._older = {"": b""}, known
        return [_place(words, known) for words in words_of]

    def _learn(self, words: Sequence[str]) -> dict[str, bytes]:
        """The tokens of these words, without the words that are not to be kept."""
        text = f" {' '.join(words)} "
        encoding = self._encode(text)
        if encoding is None:
            return {}
        tokens = np.empty((len(encoding), 3), np.int32)
        if len(encoding):
            tokens[:, 0], tokens[:, 1:] = encoding.ids, encoding.offsets
        lengths = np.fromiter(map(len, words), np.int32, len(words))
        starts = np.cumsum(lengths + 1, dtype=np.int32) - lengths
        # Each token must be of one word.
        word_of = np.searchsorted(starts, tokens[:, 1], side="right") - 1
        outside = (tokens[:, 1] >= tokens[:, 2]) | (word_of < 0) | (tokens[:, 2] > (starts + lengths)[word_of])
        if np.any(outside) or np.any(np.diff(word_of) < 0):
            return {}
        for space in np.flatnonzero(np.isin(tokens[:, 0], self._spaces)).tolist():
            start, end = tokens[space, 1:].tolist()
            if text[start:end] not in SPACES:  # as `SpacedSpans`
                tokens[space, 2] = start
        tokens[:, 1:] -= starts[word_of, None]
        ends = np.searchsorted(word_of, np.arange(len(words)), side="right").tolist()
        kept, begin = dict[str, bytes](), 0
        for word, end in zip(words, ends, strict=True):
            if end - begin <= LONGEST_TOKENS:
                kept[word] = tokens[begin:end].tobytes()
            begin = end
        return kept


def _may_be_kept(word: str) -> bool:
    """Whether a word is short, and without characters that a normalizer drops or reads together with the one before."""
    if len(word) > LONGEST_CHARS or not word.isprintable():
        return False
    extending = (category(char)[0] == "M" or char in _EXTENDING for char in word)
    return word.isascii() or not any(extending)


def _place(words: Sequence[str], known: Mapping[str, bytes]) -> tuple[Int32Array, PlacedSpans] | None:
    """The tokens of a text from those of its words; None if one of them is not known."""
    try:
        tokens_of = [*map(known.__getitem__, words)]
    except KeyError:
        return None
    tokens = np.frombuffer(b"".join(tokens_of), np.int32).reshape(-1, 3)
    counts = np.fromiter(map(len, tokens_of), np.int64, len(words)) // _TOKEN_BYTES
    lengths = np.fromiter(map(len, words), np.int32, len(words))
    places = np.repeat(np.cumsum(lengths + 1, dtype=np.int32) - (lengths + 1), counts)
    return tokens[:, 0].copy(), PlacedSpans(tokens[:, 1] + places, tokens[:, 2] + places)


_SPLITTERS = frozenset({"BertPreTokenizer", "Whitespace", "WhitespaceSplit"})
_NORMALIZERS = frozenset({
    "BertNormalizer", "Lowercase", "NFC", "NFD", "NFKC", "NFKD", "Nmt", "Precompiled", "StripAccents",
})  # fmt: skip
_EACH_WORD = {"type": "Metaspace", "prepend_scheme": "always"}
_ONE_SPACE = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}


def splits_at_spaces(backend: Tokenizer) -> bool:
    """Whether a word between two spaces has the same tokens in every text, as far as the parts are known."""
    splitters = _parts(backend.pre_tokenizer, "pretokenizers")
    return (
        isinstance(backend.model, models.WordPiece | models.Unigram)
        # A Unigram model may draw among the best ways to split a word.
        and not getattr(backend.model, "nbest_size", None)
        and isinstance(backend.post_processor, processors.TemplateProcessing | processors.BertProcessing | None)
        # Other added tokens are looked for in the text, and may contain spaces.
        and backend.encode_special_tokens
        and all(token.special for token in backend.get_added_tokens_decoder().values())
        and all(
            each["type"] in _NORMALIZERS or each == _ONE_SPACE for each in _parts(backend.normalizer, "normalizers")
        )
        # White space must be the first to split at. After it, no part sees more than one word.
        and bool(splitters and splitters[0]["type"] in _SPLITTERS)
        and all(each["type"] in _SPLITTERS or each | _EACH_WORD == each for each in splitters)
    )


def _parts(component: Any, key: str) -> list[dict[str, Any]]:  # noqa: ANN401  a class for each kind, with no base of use
    """A normalizer or a pre-tokenizer as tokenizer.json writes it, as the sequence of its parts."""
    if component is None:
        return []
    content: dict[str, Any] = json.loads(component.__getstate__())
    return content[key] if content["type"] == "Sequence" else [content]
