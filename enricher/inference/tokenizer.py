"""Article texts -> token ids and character spans, with the checkpoint's own fast tokenizer.

Cuts nothing into windows, pads nothing and adds no special tokens: that is core/windowing.py's and a form's work. No
text of an article ever gets into a message.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

from enricher.errors import InvalidArticle, ModelError
from enricher.inference.checkpoint import VOCABULARY_FILES
from enricher.records import Article, TokenizedArticle, TokenizedField

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tokenizers import Encoding

    from enricher.inference.checkpoint import Checkpoint
    from enricher.records import FieldName


class EncodingSpans:
    """The library's encoding of one text, asked token by token: to make arrays of it costs a tenth of tokenising."""

    __slots__ = ("chars_of", "word_of")

    def __init__(self, encoding: Encoding) -> None:
        # Neither is ever None: only special tokens are without a word, and there are none.
        self.word_of = cast("Callable[[int], int]", encoding.token_to_word)
        self.chars_of = cast("Callable[[int], tuple[int, int]]", encoding.token_to_chars)


class ArticleTokenizer:
    """Tokenises articles; safe to call from several threads at once, and meant to be (the library releases the GIL).

    Title and body are separate texts, so spans count within their own field. Raises ModelError where the checkpoint has
    no fast tokenizer, or one that is not its own.
    """

    def __init__(
        self, checkpoint: Checkpoint, *, max_article_tokens: int, too_long: Literal["truncate", "dead_letter"]
    ) -> None:
        tokenizer = _load(checkpoint)
        self._max_article_tokens = max_article_tokens
        self._too_long = too_long
        self.specials_before, self.specials_after = _specials(tokenizer)
        """Ids that the model expects around every window."""
        pad_id = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else checkpoint.config.pad_token_id
        self.pad_id: int = pad_id or 0
        self.max_window_tokens = min(checkpoint.max_window_tokens, int(tokenizer.model_max_length))
        """The longest window that the model takes, special tokens included."""
        self._backend = tokenizer.backend_tokenizer
        self._backend.no_padding()
        self._backend.no_truncation()
        # Otherwise "[SEP]" or "<s>" in an article's text would become the special token of that name.
        self._backend.encode_special_tokens = True

    def tokenize(self, articles: Sequence[Article]) -> list[TokenizedArticle | InvalidArticle]:
        """One result per article, in order; an article that can never be tokenised gives an InvalidArticle. Blocks."""
        encodings = self._encode([text for article in articles for text in (article.title, article.body)])
        return [self._article(title, body) for title, body in zip(encodings[0::2], encodings[1::2], strict=True)]

    def _encode(self, texts: Sequence[str]) -> list[Encoding | None]:
        """None for a text that the library refuses. It refuses whole batches, so a bad one is tried text by text."""
        try:
            encodings: list[Encoding | None] = self._backend.encode_batch(texts, add_special_tokens=False)
        except BaseException as error:
            if not _refusal(error):
                raise
        else:
            return encodings
        return [None] if len(texts) == 1 else [self._encode([text])[0] for text in texts]

    def _article(self, title: Encoding | None, body: Encoding | None) -> TokenizedArticle | InvalidArticle:
        if title is None or body is None:
            return InvalidArticle("a text is not well-formed Unicode, or the tokenizer refuses it", stage="tokenize")
        fields = _field("title", title), _field("body", body)
        length_tokens = len(fields[0].ids) + len(fields[1].ids)
        if length_tokens > self._max_article_tokens:
            return self._cut(fields, length_tokens)
        return TokenizedArticle(fields)

    def _cut(self, fields: Sequence[TokenizedField], length_tokens: int) -> TokenizedArticle | InvalidArticle:
        """An article above the limit. Its title comes first, so its body is cut first."""
        if self._too_long == "dead_letter":
            rule = f"{length_tokens} tokens, and the limit (max_article_tokens) is {self._max_article_tokens}"
            return InvalidArticle(rule, stage="tokenize")
        kept, room = [], self._max_article_tokens
        for part in fields:
            kept.append(TokenizedField(part.name, part.ids[:room], part.spans))
            room -= len(kept[-1].ids)
        return TokenizedArticle(tuple(kept), truncated=True)


def _field(name: FieldName, encoding: Encoding) -> TokenizedField:
    return TokenizedField(name, np.array(encoding.ids, np.int32), EncodingSpans(encoding))


def _refusal(error: BaseException) -> bool:
    """True for what the library raises about a text: TypeError for lone surrogates, or its panic, a BaseException."""
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"


def _load(checkpoint: Checkpoint) -> Any:  # noqa: ANN401  transformers' own classes are untyped
    if not any((checkpoint.folder / name).is_file() for name in VOCABULARY_FILES):
        # transformers would make a tokenizer with an empty vocabulary, and everything would be [UNK].
        raise ModelError(f"{checkpoint.folder}: no tokenizer. One of {', '.join(VOCABULARY_FILES)} must be there.")
    # Threads of ours each call encode_batch; the library's own threads would contend with them and with the lanes.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    # transformers otherwise says on every start that PyTorch is missing. That is intended.
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
    from transformers import AutoTokenizer  # noqa: PLC0415  half a second, and it reads the lines above

    try:
        tokenizer = AutoTokenizer.from_pretrained(checkpoint.folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:
        raise ModelError(f"{checkpoint.folder}: its tokenizer cannot be loaded: {error}") from error
    return _checked(tokenizer, checkpoint)


def _checked(tokenizer: Any, checkpoint: Checkpoint) -> Any:  # noqa: ANN401  as above
    if not tokenizer.is_fast:
        raise ModelError(
            f"{checkpoint.folder}: {type(tokenizer).__name__} is not a fast tokenizer, and only those give spans. "
            f"AutoTokenizer.from_pretrained(...).save_pretrained(...) writes a fast one's tokenizer.json."
        )
    size, rows = tokenizer.backend_tokenizer.get_vocab_size(), checkpoint.config.vocab_size
    if size > rows:
        raise ModelError(
            f"{checkpoint.folder}: the tokenizer has {size} tokens and the model {rows} embeddings: "
            f"they do not belong together."
        )
    return tokenizer


def _specials(tokenizer: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:  # noqa: ANN401  as above
    """The ids that the tokenizer itself puts before and after a text."""
    encoded = tokenizer("a", return_special_tokens_mask=True)
    ids, special = encoded["input_ids"], encoded["special_tokens_mask"]
    plain = [index for index, is_special in enumerate(special) if not is_special]
    if not plain:
        raise ModelError("the tokenizer turns the letter a into nothing; it cannot be this model's")
    return tuple(ids[: plain[0]]), tuple(ids[plain[-1] + 1 :])
