"""Which texts share sentences: by what they say, not by how they are written down."""

from __future__ import annotations

import json
import textwrap

import pytest

from enricher.workshop.calibration import sentences_of, shares_sentence
from enricher.workshop.gate.gold import DEFAULT_GOLD

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


def test_short_sentences_do_not_count_within_longer_texts() -> None:
    """They occur in unrelated texts; but a whole text that is short, such as a headline, does count."""
    short, known = "He declined to comment.", sentences_of(["Asked twice. He declined to comment. He left."])
    assert not shares_sentence(short, known)
    assert not shares_sentence(f"Nobody knew. {short} That was all.", sentences_of([short]))
    assert shares_sentence("Rates rise again", sentences_of(["RATES RISE AGAIN!"]))
    assert not shares_sentence("?!", sentences_of(["", "..."]))


@pytest.mark.parametrize("text", ["中国外交部发言人说，双方将继续沟通。", "“双方将继续就此保持沟通。”"])
def test_sentences_without_spaces_are_found(text: str) -> None:
    """As Chinese and Japanese write them, where few letters make a sentence."""
    assert shares_sentence(f"今天下雨了。{text}他没有回答其他问题。", sentences_of([text]))
    assert not shares_sentence("今天下雨了。他没有回答。", sentences_of(["昨天下雨了。他没有回答。"]))


def test_quotation_marks_after_the_full_stop_belong_to_the_sentence() -> None:
    """Whatever kind they are."""
    for closing in ('"', "”", "’”", "»", ".)", ".]"):
        text = f"It began at noon. “{SENTENCE}{closing} Nobody else spoke."
        assert shares_sentence(text, sentences_of([SENTENCE])), closing


def test_a_wrapped_text_is_found() -> None:
    """Every text of the gold set, wrapped at 72 columns: alone, and as a paragraph of a longer text if it is not short."""
    gold = [json.loads(line)["text"] for line in DEFAULT_GOLD.read_text("utf-8").splitlines()]
    known = sentences_of(gold)
    wrapped = [textwrap.fill(text, 72) for text in gold]
    assert [] == [text for text in wrapped if not shares_sentence(text, known)]
    assert sum("\n" in text for text in wrapped) > 700
    within = [f"Before it.\n\n{text}\n\nAfter it." for text in wrapped if len(text) > 40]
    assert [] == [text for text in within if not shares_sentence(text, known)]
