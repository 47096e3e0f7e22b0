"""Which texts share sentences: by what they say, not by how they are written down."""

from __future__ import annotations

import pytest

from enricher.inference.gate.overlap import sentences_of, shares_sentence

SENTENCE = "While much of it is unprecedented, the transition of power is not, Kori Schulman wrote."


@pytest.mark.parametrize(
    "text",
    [
        SENTENCE,
        SENTENCE.upper(),
        f"Another one stands before it! {SENTENCE} And one after it.",
        f"A headline\n{SENTENCE}",
        "While  much of it is unprecedented -- the transition of power is not, “Kori Schulman” wrote",
        SENTENCE.replace("i", "\N{FULLWIDTH LATIN SMALL LETTER I}"),
    ],
)
def test_a_sentence_is_found_in_any_case_layout_and_punctuation(text: str) -> None:
    """In both directions: the gold set may have documents, and the other texts sentences."""
    assert shares_sentence(text, sentences_of([SENTENCE]))
    assert shares_sentence(SENTENCE, sentences_of([text]))


@pytest.mark.parametrize(
    "text",
    ["", "Nobody wrote such a sentence about the transition of power.", SENTENCE[:60], SENTENCE.replace("not", "new")],
)
def test_other_sentences_are_not_found(text: str) -> None:
    """Nor a part of one."""
    assert not shares_sentence(text, sentences_of([SENTENCE]))


def test_short_sentences_do_not_count() -> None:
    """They occur in unrelated texts."""
    assert not shares_sentence("He declined to comment.", sentences_of(["He declined to comment."]))


def test_sentences_without_spaces_are_found() -> None:
    """As Chinese and Japanese write them."""
    sentence = "中国外交部发言人星期二在北京举行的例行记者会上表示，双方将继续就此保持密切沟通。"
    assert shares_sentence(f"今天下雨了。{sentence}他没有回答其他问题。", sentences_of([sentence]))
