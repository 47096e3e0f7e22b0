"""Article texts -> token ids and character spans, with the checkpoint's own fast tokenizer.

Cuts nothing into windows, pads nothing and adds no special tokens: that is core/windowing.py's and a form's work. No
text of an article ever gets into a message.
"""

from __future__ import annotations

import json
import os
import re
from bisect import bisect_right
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

from enricher.errors import InvalidArticle, ModelError
from enricher.inference.checkpoint import VOCABULARY_FILES
from enricher.records import Article, TokenizedArticle, TokenizedField

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tokenizers import Encoding

    from enricher.inference.checkpoint import Checkpoint
    from enricher.records import FieldName

OWN_FILE = "tokenizer.json"
"""The whole tokenizer, as its own library wrote it. The other files only say what its class is to be made of."""
_BERT_OPTIONS = {
    "do_lower_case": "lowercase",
    "strip_accents": "strip_accents",
    "tokenize_chinese_chars": "handle_chinese_chars",
}
"""What tokenizer_config.json may say of BERT's normalizer, and what that is called there."""
_WRITES_OWN_FILE = f"AutoTokenizer.from_pretrained(...).save_pretrained(...) writes a {OWN_FILE}."
CASED_SHARE = 0.01
"""Of a cased vocabulary about a third begins with a capital, of others nothing but special tokens."""
_WORD = re.compile(r"\S+")


class EncodingSpans:
    """The library's encoding of one text, asked token by token: to make arrays of it costs a tenth of tokenising."""

    __slots__ = ("chars_of", "word_of")

    def __init__(self, encoding: Encoding) -> None:
        # Neither is ever None: only special tokens are without a word, and there are none.
        self.word_of = cast("Callable[[int], int]", encoding.token_to_word)
        self.chars_of = cast("Callable[[int], tuple[int, int]]", encoding.token_to_chars)


class SpacedSpans:
    """The same of a tokenizer that does not split texts into words, such as Gemma's: words are what white space parts."""

    __slots__ = ("_text", "_word_starts", "chars_of")

    def __init__(self, encoding: Encoding, text: str) -> None:
        self._text = text
        self._word_starts = [word.start() for word in _WORD.finditer(text)]
        self.chars_of = cast("Callable[[int], tuple[int, int]]", encoding.token_to_chars)

    def word_of(self, token: int) -> int:
        """The word that the token is in; one of white space alone is in the next."""
        start, end = self.chars_of(token)
        piece = self._text[start:end]
        return bisect_right(self._word_starts, end - len(piece.lstrip()))


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
        self.pad_id = _pad_id(tokenizer, checkpoint)
        self.max_window_tokens = int(min(checkpoint.max_window_tokens, tokenizer.model_max_length))
        """The longest window that the model takes, special tokens included."""
        self._backend = tokenizer.backend_tokenizer
        self._backend.no_padding()
        self._backend.no_truncation()
        # Otherwise "[SEP]" or "<s>" in an article's text would become the special token of that name.
        self._backend.encode_special_tokens = True
        self._splits_words = len(set(self._backend.encode("a b", add_special_tokens=False).word_ids)) > 1

    def tokenize(self, articles: Sequence[Article]) -> list[TokenizedArticle | InvalidArticle]:
        """One result per article, in order; an article that can never be tokenised gives an InvalidArticle. Blocks."""
        encodings = self._encode([text for article in articles for text in (article.title, article.body)])
        pairs = zip(articles, encodings[0::2], encodings[1::2], strict=True)
        return [self._article(article, title, body) for article, title, body in pairs]

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
        """An article above the limit. Its title comes first, so its body is cut first."""
        if self._too_long == "dead_letter":
            rule = f"{length_tokens} tokens, and the limit (max_article_tokens) is {self._max_article_tokens}"
            return InvalidArticle(rule, stage="tokenize")
        kept, room = [], self._max_article_tokens
        for part in fields:
            kept.append(TokenizedField(part.name, part.ids[:room], part.spans))
            room -= len(kept[-1].ids)
        return TokenizedArticle(tuple(kept), truncated=True)

    def _field(self, name: FieldName, encoding: Encoding, text: str) -> TokenizedField:
        spans = EncodingSpans(encoding) if self._splits_words else SpacedSpans(encoding, text)
        return TokenizedField(name, np.array(encoding.ids, np.int32), spans)


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
    from transformers import AutoTokenizer, PreTrainedTokenizerFast  # noqa: PLC0415  half a second, and it reads the lines above

    # A model's own class would take the vocabulary out of that file, and the rest from its own defaults: a cased BERT
    # without a tokenizer_config.json would get its text in lower case.
    own = (checkpoint.folder / OWN_FILE).is_file()
    kind = PreTrainedTokenizerFast if own else AutoTokenizer
    try:
        tokenizer = kind.from_pretrained(checkpoint.folder, local_files_only=True, trust_remote_code=False)
        if own:
            _configure(tokenizer)
        tokenizer("a")  # one without its token for unknown words fails at a text only
    except Exception as error:
        where = "" if own else f" There is no {OWN_FILE}; where this tokenizer loads, {_WRITES_OWN_FILE}"
        raise ModelError(f"{checkpoint.folder}: its tokenizer cannot be loaded: {error}{where}") from error
    if not own:
        _require_case(tokenizer, checkpoint.folder)
    return _checked(tokenizer, checkpoint)


def _require_case(tokenizer: Any, folder: Path) -> None:  # noqa: ANN401  as above
    """Whether BERT's text is put into lower case stands in no vocabulary, and transformers does it where nobody says."""
    path = folder / "tokenizer_config.json"
    said = json.loads(path.read_bytes()) if path.is_file() else {}
    if "do_lower_case" in said or not getattr(tokenizer.backend_tokenizer.normalizer, "lowercase", False):
        return
    tokens = tokenizer.get_vocab().keys() - set(tokenizer.all_special_tokens)
    if sum(token != token.lower() for token in tokens) > CASED_SHARE * len(tokens):
        raise ModelError(
            f"{folder}: the vocabulary has words in upper case, and nothing says whether text keeps its case: write "
            f'"do_lower_case": false (or true) into tokenizer_config.json.'
        )


def _configure(tokenizer: Any) -> None:  # noqa: ANN401  as above
    """What tokenizer_config.json says counts for more than tokenizer.json, as transformers has it."""
    from tokenizers.normalizers import BertNormalizer  # noqa: PLC0415  it comes with transformers
    from tokenizers.pre_tokenizers import ByteLevel  # noqa: PLC0415  the same

    backend, said = tokenizer.backend_tokenizer, tokenizer.init_kwargs
    if isinstance(normalizer := backend.normalizer, BertNormalizer):
        for option, attribute in _BERT_OPTIONS.items():
            if option in said:
                setattr(normalizer, attribute, said[option])
    if isinstance(splitter := backend.pre_tokenizer, ByteLevel) and "add_prefix_space" in said:
        splitter.add_prefix_space = said["add_prefix_space"]


def _checked(tokenizer: Any, checkpoint: Checkpoint) -> Any:  # noqa: ANN401  as above
    if not tokenizer.is_fast:
        raise ModelError(
            f"{checkpoint.folder}: {type(tokenizer).__name__} is not a fast tokenizer, and only those give spans. "
            f"Where it loads, {_WRITES_OWN_FILE}"
        )
    rows: int | None = checkpoint.config.vocab_size  # None: a model that is ONNX already need not say
    if rows is not None and (needed := _embeddings_needed(tokenizer, rows)) > rows:
        raise ModelError(
            f"{checkpoint.folder}: the tokenizer has {needed} tokens and the model {rows} embeddings: "
            f"they do not belong together."
        )
    return tokenizer


def _embeddings_needed(tokenizer: Any, rows: int) -> int:  # noqa: ANN401  as above
    """One for each token, but for special ones behind the last row: a class adds them unasked, and no window has them."""
    backend = tokenizer.backend_tokenizer
    added = backend.get_added_tokens_decoder().items()
    size = backend.get_vocab_size() - sum(token.special and number >= rows for number, token in added)
    needed: int = max([size, *(number + 1 for number in tokenizer("a")["input_ids"])])
    return needed


def _pad_id(tokenizer: Any, checkpoint: Checkpoint) -> int:  # noqa: ANN401  as above
    """What fills the space behind short windows. It is masked out: where the usual one has no embedding, any other does."""
    known = (tokenizer.pad_token_id, checkpoint.config.pad_token_id)
    rows: int | None = checkpoint.config.vocab_size
    return next((each for each in known if each is not None and (rows is None or 0 <= each < rows)), 0)


def _specials(tokenizer: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:  # noqa: ANN401  as above
    """The ids that the tokenizer itself puts before and after a text."""
    encoded = tokenizer("a", return_special_tokens_mask=True)
    ids, special = encoded["input_ids"], encoded["special_tokens_mask"]
    plain = [index for index, is_special in enumerate(special) if not is_special]
    if not plain:
        raise ModelError("the tokenizer turns the letter a into nothing; it cannot be this model's")
    return tuple(ids[: plain[0]]), tuple(ids[plain[-1] + 1 :])
