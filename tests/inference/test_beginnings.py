"""Very long texts: as many of their tokens are made as count, and those are the ones of the whole text."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pipeline.decoding_rule import SCHEMES
from pipeline.test_decoding_rule import folder_of

from enricher.worker.inference.checkpoint.folder import Checkpoint
from enricher.worker.inference.run.model import EMBEDDED_FOLDER
from enricher.worker.inference.tokenizer.article_tokenizer import ArticleTokenizer, encode_beginning, is_long
from enricher.worker.records import Article, TokenizedArticle

LIMIT_TOKENS = 100
CHARS = 5_000
NEWS = "Angela Merkel met Emmanuel Macron in São Paulo. "
TEXTS = {
    "marks": "!" * CHARS,
    "Chinese": "中文東京" * (CHARS // 4),
    "letters apart": "a b " * (CHARS // 4),
    "words": NEWS * (CHARS // len(NEWS)),
    "one word": "a" * CHARS,
    "one word, then marks": "a" * (CHARS // 2) + "!" * (CHARS // 2),
    "accents apart": "e\u0301" * (CHARS // 2),
    "emoji": "\U0001f469\u200d\U0001f680" * (CHARS // 3),
    "control characters, then words": "\x00" * (CHARS // 2) + NEWS * (CHARS // 100),
    "one character that is four words": "\ufdfa" * CHARS,
    "such a one in each word": "Anna\ufdfaParis " * (CHARS // 11),
    "accents behind spaces": "a \u0301" * (CHARS // 3),
    "names of special tokens": "</s><pad>[SEP] " * (CHARS // 15),
    "anything": "".join(random.Random(7).choices("ab e\u0301中!\u200b\n\U0001f680#[]", k=CHARS)),
    "anything that changes": "".join(random.Random(8).choices("ab e\u0301\ufdfa½\u1112\u1161\u00a8\u00a0▁'l", k=CHARS)),
}


@pytest.fixture(scope="module")
def built_in() -> ArticleTokenizer:
    """The built-in model's."""
    return ArticleTokenizer(Checkpoint.open(EMBEDDED_FOLDER), max_article_tokens=LIMIT_TOKENS)


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_the_tokens_that_count_are_those_of_the_whole_text(
    text: str, built_in: ArticleTokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same ids and places, wherever the text is dense, and in the middle of whatever it is cut."""
    require_same_tokens(built_in, text, monkeypatch)


@pytest.mark.parametrize("family", ["roberta", "xlm-roberta", "camembert"])
def test_so_they_are_with_the_tokenizers_of_other_families(
    family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where tokens share a character, and where spaces and bytes are tokens."""
    checkpoint = Checkpoint.open(folder_of(family, tmp_path / "model", SCHEMES["IOB2"]))
    tokenizer = ArticleTokenizer(checkpoint, max_article_tokens=LIMIT_TOKENS)
    for text in TEXTS.values():
        require_same_tokens(tokenizer, text, monkeypatch)


def require_same_tokens(tokenizer: ArticleTokenizer, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the whole text tokenised, and with what of it counts."""
    article = Article("a", "A title", text)
    (short,) = tokenizer.tokenize([article])
    with monkeypatch.context() as patched:
        patched.setattr("enricher.worker.inference.tokenizer.article_tokenizer.is_long", lambda *_: False)
        (whole,) = tokenizer.tokenize([article])
    assert isinstance(short, TokenizedArticle)
    assert isinstance(whole, TokenizedArticle)
    assert short.truncated == whole.truncated
    for ours, expected in zip(short.fields, whole.fields, strict=True):
        assert np.array_equal(ours.ids, expected.ids)
        for token in range(len(expected.ids)):
            assert ours.spans.chars_of(token) == expected.spans.chars_of(token)


class Characters(str):
    """A text whose tokens are its characters, each a word."""

    __slots__ = ()

    def token_to_word(self, token_index: int) -> int:
        """The same number."""
        return token_index


class OneWord(Characters):
    """The same, and all of it one word."""

    __slots__ = ()

    def token_to_word(self, token_index: int) -> int:
        """The first."""
        return 0 * token_index


def test_of_a_dense_text_little_more_is_made_than_counts() -> None:
    """A megabyte at 100,000 tokens: an eighth of it."""
    made: list[int] = []

    def encode(text: str) -> Any:  # noqa: ANN401  it has what is used of an encoding
        made.append(len(text))
        return Characters(text)

    found = encode_beginning("!" * 1_000_000, 100_000, encode)
    assert found is not None
    assert (125_000, [125_000]) == (len(found), made)


def test_what_may_have_been_cut_within_a_word_is_made_whole() -> None:
    """Where the last word reaches from the tokens that count to the end of what was made, its tokens prove nothing."""
    made: list[int] = []

    def encode(text: str) -> Any:  # noqa: ANN401  it has what is used of an encoding
        made.append(len(text))
        return OneWord(text)

    found: Any = encode_beginning("a" * 10_000, 1_000, encode)
    assert "a" * 10_000 == found
    assert [1_250, 2_500, 10_000] == made


def test_a_text_that_is_refused_is_refused_whole() -> None:
    """Its beginning may be, or only its end."""
    assert encode_beginning("x" * 10_000, 1_000, lambda _: None) is None


def test_news_are_never_long() -> None:
    """A quarter of a million characters at the default limit: nothing changes for what anybody writes."""
    assert not is_long("x" * 250_000, 100_000)
    assert is_long("x" * 250_001, 100_000)
