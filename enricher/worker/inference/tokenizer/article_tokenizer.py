"""Article texts -> token ids and character spans, with the checkpoint's own fast tokenizer.

Cuts no windows, pads nothing and adds no special tokens: `rules/windowing.py` and the variants do. No message contains
text of an article.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, Literal, cast

import numpy as np

from enricher.errors import InvalidArticle
from enricher.worker.inference.tokenizer.beginnings import encode_beginning, is_long
from enricher.worker.inference.tokenizer.loading import load_tokenizer, pad_id_of, specials_of
from enricher.worker.inference.tokenizer.special_tokens import text_only
from enricher.worker.records import Article, TokenizedArticle, TokenizedField

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tokenizers import Encoding, Tokenizer

    from enricher.worker.inference.checkpoint.folder import Checkpoint
    from enricher.worker.records import FieldName, TokenSpans

NO_LIMIT_TOKENS = 1_000_000
"""More than any article of a gold set or a benchmark has."""
_WORD = re.compile(r"\S+")


class EncodingSpans:
    """The library's encoding of one text, read token by token: arrays of all tokens would cost a tenth of tokenizing."""

    __slots__ = ("chars_of", "word_of")

    def __init__(self, encoding: Encoding) -> None:
        # Neither is ever None: only special tokens have no word, and there are none.
        self.word_of = cast("Callable[[int], int]", encoding.token_to_word)
        self.chars_of = cast("Callable[[int], tuple[int, int]]", encoding.token_to_chars)


class JoinedSpans:
    """Spans of tokenizers that may split a character into several words, as compatibility forms do with U+FDFA.

    Words that share a character count as one word, because two entities must not overlap.
    """

    __slots__ = ("_joined", "_own_word_of", "chars_of")

    def __init__(self, encoding: Encoding) -> None:
        self._own_word_of = cast("Callable[[int], int]", encoding.token_to_word)
        self._joined: dict[int, int] = {}
        self.chars_of = cast("Callable[[int], tuple[int, int]]", encoding.token_to_chars)

    def word_of(self, token: int) -> int:
        """The first of the words that are joined with the token's own."""
        own = self._own_word_of(token)
        found = self._joined.get(own)
        if found is None:
            found = self._joined[own] = self._first_joined(own, token)
        return found

    def _first_joined(self, own: int, token: int) -> int:
        """Walk back from a token of the word `own`, while the word before shares a character."""
        while True:
            while token and (before := self._own_word_of(token - 1)) == own:
                token -= 1
            if not token or self.chars_of(token)[0] >= self.chars_of(token - 1)[1]:
                return own
            if (found := self._joined.get(before)) is not None:
                return found
            own, token = before, token - 1


class SpacedSpans:
    """Spans of tokenizers that do not split texts into words, such as Gemma's: white space separates words."""

    __slots__ = ("_text", "_word_starts", "chars_of")

    def __init__(self, encoding: Encoding, text: str) -> None:
        self._text = text
        self._word_starts = [word.start() for word in _WORD.finditer(text)]
        self.chars_of = cast("Callable[[int], tuple[int, int]]", encoding.token_to_chars)

    def word_of(self, token: int) -> int:
        """The token's word; a token of white space belongs to the next word."""
        start, end = self.chars_of(token)
        piece = self._text[start:end]
        return bisect_right(self._word_starts, end - len(piece.lstrip()))


class ArticleTokenizer:
    """Tokenizes articles. Several threads may call it at once; the library releases the GIL.

    Title and body are separate texts, so spans count within their field. Raises ModelError if the checkpoint has no fast
    tokenizer, or one that does not belong to the model.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        *,
        max_article_tokens: int = NO_LIMIT_TOKENS,
        too_long: Literal["truncate", "dead_letter"] = "truncate",
    ) -> None:
        tokenizer = load_tokenizer(checkpoint)
        self._max_article_tokens = max_article_tokens
        self._too_long = too_long
        self.specials_before, self.specials_after = specials_of(tokenizer)
        """Ids that the model expects around every window."""
        self.pad_id = pad_id_of(tokenizer, checkpoint)
        self.max_window_tokens = int(min(checkpoint.max_window_tokens, tokenizer.model_max_length))
        """The longest window that the model takes, special tokens included."""
        # "[SEP]" or "<s>" in an article must not become a special token.
        self._backend = text_only(tokenizer.backend_tokenizer, tokenizer.all_special_tokens)
        self._backend.no_padding()
        self._backend.no_truncation()
        self._spans = _spans_for(self._backend)

    def tokenize(self, articles: Sequence[Article]) -> list[TokenizedArticle | InvalidArticle]:
        """One result per article, in order; InvalidArticle for one that can never be tokenized. Blocks."""
        texts = [text for article in articles for text in (article.title, article.body)]
        if any(is_long(text, self._max_article_tokens) for text in texts):
            encodings = [encode_beginning(text, self._max_article_tokens, self._encode_one) for text in texts]
        else:
            encodings = self._encode(texts)
        pairs = zip(articles, encodings[0::2], encodings[1::2], strict=True)
        return [self._article(article, title, body) for article, title, body in pairs]

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
        self, article: Article, title: Encoding | None, body: Encoding | None
    ) -> TokenizedArticle | InvalidArticle:
        if title is None or body is None:
            return InvalidArticle("a text is not well-formed Unicode, or the tokenizer refuses it", stage="tokenize")
        fields = self._field("title", title, article.title), self._field("body", body, article.body)
        length_tokens = len(fields[0].ids) + len(fields[1].ids)
        if length_tokens > self._max_article_tokens:
            return self._cut(fields, length_tokens)
        return TokenizedArticle(fields)

    def _cut(self, fields: Sequence[TokenizedField], length_tokens: int) -> TokenizedArticle | InvalidArticle:
        """Cut an article that is above the limit after the last word that fits. The title comes first."""
        if self._too_long == "dead_letter":
            rule = f"at least {length_tokens} tokens, and the limit (max_article_tokens) is {self._max_article_tokens}"
            return InvalidArticle(rule, stage="tokenize")
        kept, left = [], self._max_article_tokens
        for part in fields:
            cut = len(part.ids) > left
            kept.append(TokenizedField(part.name, part.ids[: _word_end(part, left)], part.spans) if cut else part)
            left = 0 if cut else left - len(part.ids)
        return TokenizedArticle(tuple(kept), truncated=True)

    def _field(self, name: FieldName, encoding: Encoding, text: str) -> TokenizedField:
        return TokenizedField(name, np.array(encoding.ids, np.int32), self._spans(encoding, text))


def _spans_for(backend: Tokenizer) -> Callable[[Encoding, str], TokenSpans]:
    """How to read a tokenizer's encodings. Without a normalizer, or with BERT's, no character is split into words."""
    from tokenizers.normalizers import BertNormalizer  # noqa: PLC0415  slow, and loaded already

    if len(set(backend.encode("a b", add_special_tokens=False).word_ids)) == 1:
        return SpacedSpans
    plain = backend.normalizer is None or isinstance(backend.normalizer, BertNormalizer)
    return (lambda encoding, _: EncodingSpans(encoding)) if plain else (lambda encoding, _: JoinedSpans(encoding))


def _word_end(part: TokenizedField, limit: int) -> int:
    """The number of the field's tokens up to `limit` that end with a word; 0 if the first word is longer."""
    word_of = part.spans.word_of
    return bisect_left(range(limit), word_of(limit), key=word_of)


def _is_refusal(error: BaseException) -> bool:
    """Whether the library refused a text: TypeError for lone surrogates, or its panic, which is a BaseException."""
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"
