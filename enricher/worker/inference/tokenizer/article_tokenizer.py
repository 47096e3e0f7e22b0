"""Article texts -> token ids and character spans, with the checkpoint's own fast tokenizer.

Cuts no windows, pads nothing and adds no special tokens: `rules/windowing.py` and the variants do. No message contains
text of an article.

Every text is ordinary text: no article can contain a special token. With `encode_special_tokens` the library does not look
for `</s>` before it splits a text. But `</s>` is also a piece of SentencePiece models (XLM-RoBERTa, CamemBERT), which still
find it, and so does any model whose words may contain such a name. For these models, the special tokens get names that
nobody can guess; their ids stay.

A very long text is tokenized only at its beginning if only its first tokens are kept. A megabyte of exclamation marks has a
million tokens, of which an article keeps 100,000. Tokenizing all of it took 1.6 s of a core and 558 MB; its beginning takes
0.12 s and 62 MB. A beginning has the same tokens as the whole text, up to the word in which it is cut.
"""

from __future__ import annotations

import json
import secrets
from bisect import bisect_right
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from tokenizers import Encoding, Tokenizer

from enricher.errors import InvalidArticle
from enricher.worker.inference.checkpoint.folder import Checkpoint
from enricher.worker.inference.tokenizer.loading import (
    SPACES,
    load_tokenizer,
    pad_id_of,
    require_characters,
    specials_of,
)
from enricher.worker.inference.tokenizer.word_cache import WordCache, splits_at_spaces
from enricher.worker.records import Article, Int32Array, TokenizedArticle, TokenizedField, TokenSpans
from enricher.worker.rules.words import Words, anchor

Tokens = tuple[Int32Array, TokenSpans]
"""Ids of one text, and the positions of its tokens."""
NO_LIMIT_TOKENS = 1_000_000
"""More than any article of a gold set or a benchmark has."""


class EncodingSpans:
    """The library's encoding of one text, read token by token: arrays of all tokens would cost a tenth of tokenizing."""

    __slots__ = ("chars_of",)

    def __init__(self, encoding: Encoding) -> None:
        # Never None: only special tokens have no characters, and there are none.
        self.chars_of = cast("Callable[[int], tuple[int, int]]", encoding.token_to_chars)


class SpacedSpans:
    """The encoding of one text, for tokenizers with tokens that are only a space.

    To the library, a space that the tokenizer itself put before a word has the first character of the word, so the space
    would decide the word's label.
    """

    __slots__ = ("_chars_of", "_is_space", "_text")

    def __init__(self, encoding: Encoding, text: str, is_space: npt.NDArray[np.bool]) -> None:
        self._chars_of = cast("Callable[[int], tuple[int, int]]", encoding.token_to_chars)
        self._text = text
        self._is_space = is_space

    def chars_of(self, token: int) -> tuple[int, int]:
        """The library's range, but no character for a space, unless the text has the sign that stands for it."""
        start, end = self._chars_of(token)
        return (start, start) if self._is_space[token] and self._text[start:end] not in SPACES else (start, end)


class ArticleTokenizer:
    """Tokenizes articles. Several threads may call it at once; the library releases the GIL.

    Title and body are separate texts, so spans count within their field. Raises ModelError if the checkpoint has no fast
    tokenizer, or one that does not belong to the model or loses characters.
    """

    def __init__(self, checkpoint: Checkpoint, *, max_article_tokens: int = NO_LIMIT_TOKENS) -> None:
        tokenizer = load_tokenizer(checkpoint)
        self._max_article_tokens = max_article_tokens
        self.specials_before, self.specials_after = specials_of(tokenizer)
        """Ids that the model expects around every window."""
        self.pad_id = pad_id_of(tokenizer, checkpoint)
        self.max_window_tokens = int(min(checkpoint.max_window_tokens, tokenizer.model_max_length))
        """The longest window that the model takes, special tokens included."""
        # "[SEP]" or "<s>" in an article must not become a special token.
        self._backend = text_only(tokenizer.backend_tokenizer, tokenizer.all_special_tokens)
        self._backend.no_padding()
        self._backend.no_truncation()
        require_characters(self._backend, checkpoint.folder)
        spaces = [self._backend.token_to_id(piece) for piece in SPACES]
        self._spaces = [each for each in spaces if each is not None]
        self._words = WordCache(self._encode_one, self._spaces) if splits_at_spaces(self._backend) else None

    def tokenize(self, articles: Sequence[Article]) -> list[TokenizedArticle | InvalidArticle]:
        """One result per article, in order; InvalidArticle for one that can never be tokenized. Blocks."""
        texts = [text for article in articles for text in (article.title, article.body)]
        if any(is_long(text, self._max_article_tokens) for text in texts):
            encodings = [encode_beginning(text, self._max_article_tokens, self._encode_one) for text in texts]
            tokens = self._read(texts, encodings)
        else:
            tokens = self._tokens(texts)
        pairs = zip(articles, tokens[0::2], tokens[1::2], strict=True)
        return [self._article(article, title, body) for article, title, body in pairs]

    def _tokens(self, texts: Sequence[str]) -> list[Tokens | None]:
        """Tokens of each text, from known words where possible; None for a text that the library refuses."""
        if self._words is None:
            return self._read(texts, self._encode(texts))
        found: list[Tokens | None] = [*self._words.tokenize(texts)]
        left = [number for number, tokens in enumerate(found) if tokens is None]
        if left:
            others = [texts[number] for number in left]
            for number, tokens in zip(left, self._read(others, self._encode(others)), strict=True):
                found[number] = tokens
        return found

    def _read(self, texts: Sequence[str], encodings: Sequence[Encoding | None]) -> list[Tokens | None]:
        """The tokens of the library's encodings."""
        return [
            None if encoding is None else self._read_one(text, encoding)
            for text, encoding in zip(texts, encodings, strict=True)
        ]

    def _read_one(self, text: str, encoding: Encoding) -> Tokens:
        ids = np.array(encoding.ids, np.int32)
        is_space = np.zeros(len(ids), np.bool)
        for each in self._spaces:
            is_space |= ids == each
        return ids, SpacedSpans(encoding, text, is_space) if is_space.any() else EncodingSpans(encoding)

    def _encode(self, texts: Sequence[str]) -> list[Encoding | None]:
        """Tokens; None for a text that the library refuses. It refuses whole batches, whose texts are then tried alone."""
        try:
            return [*self._backend.encode_batch(texts, add_special_tokens=False)]
        except BaseException as error:
            if not _is_refusal(error):
                raise
        return [None] if len(texts) == 1 else [self._encode_one(text) for text in texts]

    def _encode_one(self, text: str) -> Encoding | None:
        return self._encode([text])[0]

    def _article(
        self, article: Article, title: Tokens | None, body: Tokens | None
    ) -> TokenizedArticle | InvalidArticle:
        if title is None or body is None:
            return InvalidArticle("a text is not well-formed Unicode, or the tokenizer refuses it", stage="tokenize")
        fields = TokenizedField("title", *title), TokenizedField("body", *body)
        if len(fields[0].ids) + len(fields[1].ids) > self._max_article_tokens:
            return self._cut(article, fields)
        return TokenizedArticle(fields)

    def _cut(self, article: Article, fields: Sequence[TokenizedField]) -> TokenizedArticle:
        """Cut an article that is above the limit after the last word that fits. The title comes first."""
        kept, left = [], self._max_article_tokens
        for part in fields:
            cut = len(part.ids) > left
            ids = part.ids[: _word_end(article.text(part.name), part, left)] if cut else part.ids
            kept.append(TokenizedField(part.name, ids, part.spans))
            left = 0 if cut else left - len(part.ids)
        return TokenizedArticle(tuple(kept), truncated=True)


def _word_end(text: str, part: TokenizedField, limit: int) -> int:
    """The number of the field's tokens up to `limit` that end with a word; 0 if the first word is longer."""
    chars_of = part.spans.chars_of
    start, end = chars_of(limit)
    at = anchor(text, start, end)
    if at is None:
        return limit
    word_start, _ = Words(text).at(at)
    return bisect_right(range(limit), word_start, key=lambda token: chars_of(token)[1])


def _is_refusal(error: BaseException) -> bool:
    """Whether the library refused a text: TypeError for lone surrogates, or its panic, which is a BaseException."""
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"


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


_SPARE = 1.25
"""Margin on every estimate, so that few are too low."""


def is_long(text: str, max_tokens: int) -> bool:
    """Whether a text may have far more than `max_tokens` tokens, at one token per character."""
    return len(text) > 2 * int(_SPARE * max_tokens)


def encode_beginning(text: str, max_tokens: int, encode: Callable[[str], Encoding | None]) -> Encoding | None:
    """The encoding of a beginning with the first `max_tokens` tokens of `text` and one more, or of the whole text.

    `encode` returns None for a text that it refuses. The first estimate assumes one token per character, the highest
    density; later ones use the density that was found.
    """
    chars = int(_SPARE * max_tokens)
    while 2 * chars < len(text):
        tokens = encode(text[:chars])
        if tokens is None:
            break
        last = len(tokens) - 1
        # It is enough if the first surplus token is in a word before the last one, which may have been cut.
        if last > max_tokens and tokens.token_to_word(max_tokens) != tokens.token_to_word(last):
            return tokens
        chars = max(2 * chars, int(_SPARE * max_tokens * chars / max(1, len(tokens))))
    return encode(text)
