"""Labelled text in every format: read, joined, put into batches; and which texts share sentences with others."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

import numpy as np
import pytest

from enricher.errors import FatalError
from enricher.worker.records import Partition, RawRecord, Ticket, Window
from enricher.worker.rules.batching import by_length
from enricher.workshop.calibration import sentences_of, shares_sentence
from enricher.workshop.gate.gold import (
    DEFAULT_GOLD,
    GOLD_BY_LANGUAGE,
    GoldSet,
    GoldText,
    built_in_gold,
    join_texts,
    read_gold,
)
from enricher.workshop.gate.runs import COMPOSITIONS, mix_lengths
from enricher.workshop.gate.scoring import EntitySpan, labels_of
from enricher.workshop.gate.verdict import DEFAULT_LIMIT_POINTS


def window(length_tokens: int) -> Window:
    """A window of no article."""
    ticket = Ticket(RawRecord(Partition("", 0), 0, None, None), 0.0)
    return Window(ticket, np.zeros(length_tokens, np.int32), 0, 0, length_tokens, 0, 0.0)


WINDOWS = [window(length) for length in (8, 120, 31, 64, 7, 128, 90, 15)]


@pytest.mark.parametrize(("language", "size"), [("en", (1000, 1075)), ("de", (1000, 1039)), ("zh", (500, 763))])
def test_each_built_in_gold_set_is_large_enough_for_the_default_limit(language: str, size: tuple[int, int]) -> None:
    """One of its entities weighs less than 0.3 points."""
    gold = read_gold(GOLD_BY_LANGUAGE[language])
    assert size == (len(gold.texts), sum(len(text.entities) for text in gold.texts))
    assert size[1] * DEFAULT_LIMIT_POINTS >= 100
    assert ("LOC", "ORG", "PER") == labels_of(text.entities for text in gold.texts)
    assert gold.digest == read_gold(GOLD_BY_LANGUAGE[language]).digest


def test_the_sets_of_a_models_languages_are_joined() -> None:
    """Each text says which is its set, and no document has texts of two; a language without a set brings nothing."""
    both = built_in_gold(["zh", "en", "sv"])
    assert ("pud+zh_gsd", 1500) == (both.name, len(both.texts))
    assert [1000, 500] == [sum(text.source == name for text in both.texts) for name in ("pud", "zh_gsd")]
    documents = join_texts(both.texts)
    assert join_texts(both.texts[:1000]) + join_texts(both.texts[1000:]) == documents
    assert both.digest not in {built_in_gold(["en"]).digest, built_in_gold(["en", "de", "zh"]).digest}


def test_the_set_of_one_language_or_an_unknown_one_is_that_of_the_file() -> None:
    """English if nothing is said; reports of before name the same set by the same digest."""
    assert read_gold(DEFAULT_GOLD) == built_in_gold(["en", "fr"]) == built_in_gold([])
    assert read_gold(GOLD_BY_LANGUAGE["de"]) == built_in_gold(["de"])


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("no json", "Invalid JSON"),
        ('{"text": "Rome"}', "entities"),
        ('{"text": "Rome", "entities": [{"start": 0, "end": 9, "label": "LOC"}]}', "not a span of its text"),
        ('{"text": "Rome", "entities": [{"start": "0", "end": 4, "label": "LOC"}]}', "start"),
        ('{"text": "Rome", "entities": [{"start": 0, "end": 4, "label": "MISC"}]}', "entities.0.label: .*'MISC'"),
        (
            '{"text": "Rome", "entities": [{"start": 2, "end": 4, "label": "LOC"}, {"start": 0, "end": 3, "label": "LOC"}]}',
            "entities.0: it overlaps entities.1",
        ),
        ("[" * 5000, "the line: Invalid JSON"),
    ],
)
def test_a_line_that_cannot_be_used_is_named(tmp_path: Path, line: str, problem: str) -> None:
    """With its number, and without its text."""
    good = json.dumps({"text": "Rome", "entities": [{"start": 0, "end": 4, "label": "LOC"}]})
    path = tmp_path / "gold.jsonl"
    path.write_text(f"{good}\n\n{line}\n")
    with pytest.raises(FatalError, match=f"line 3: .*{problem}"):
        read_gold(path, ["LOC"])


def test_a_gold_set_without_entities_measures_nothing(tmp_path: Path) -> None:
    """And a file that is not there is no traceback."""
    path = tmp_path / "gold.jsonl"
    path.write_text('{"text": "Rome", "entities": []}\n')
    with pytest.raises(FatalError, match="no entities"):
        read_gold(path)
    path.write_text("\n")
    with pytest.raises(FatalError, match="is empty"):
        read_gold(path)
    with pytest.raises(FatalError, match="cannot be read"):
        read_gold(tmp_path / "none.jsonl")


def test_joined_documents_hold_the_same_entities_at_the_same_words(gold: GoldSet) -> None:
    """Nothing is lost, and every span still covers its text."""
    documents = join_texts(gold.texts)
    before = [text.text[each.start : each.end] for text in gold.texts for each in text.entities]
    after = [text.text[each.start : each.end] for text in documents for each in text.entities]
    assert before == after
    assert " ".join(text.text for text in gold.texts) == " ".join(text.text for text in documents)
    assert len(documents) < len(gold.texts) / 4
    text = GoldText("In Rome", (EntitySpan("body", 3, 7, "LOC"),))
    assert (text,) == join_texts([text]), "what is left at the end is not dropped"


@pytest.mark.parametrize("name", [name for name, _ in COMPOSITIONS])
def test_every_composition_runs_each_window_once(name: str) -> None:
    """They differ in company only."""
    batches = dict(COMPOSITIONS)[name](WINDOWS)
    assert sorted(map(id, WINDOWS)) == sorted(id(each) for batch in batches for each in batch)


def test_batches_stay_within_their_tokens_and_mixed_ones_are_the_same() -> None:
    """Padding included; a window that is too long by itself goes alone."""
    for batch in [*by_length(WINDOWS, 200), *mix_lengths(WINDOWS, 200)]:
        assert len(batch) == 1 or len(batch) * max(each.length_tokens for each in batch) <= 200
    assert mix_lengths(WINDOWS, 200) == mix_lengths(WINDOWS, 200)
    assert [7, 8, 15, 31] == [each.length_tokens for each in by_length(WINDOWS, 200)[0]]


SENTENCE = "While much of it is unprecedented, the transition of power is not, Kori Schulman wrote."


CHINESE = "中国外交部发言人说，双方将继续沟通。"


@pytest.mark.parametrize(
    ("text", "known", "shares"),
    [
        (SENTENCE, SENTENCE, True),
        (SENTENCE.upper(), SENTENCE, True),
        (f"Another one stands before it! {SENTENCE} And one after it.", SENTENCE, True),
        (f"A headline\n{SENTENCE}", SENTENCE, True),
        ("While  much of it is unprecedented -- the transition of power is not, “Kori Schulman” wrote", SENTENCE, True),
        (SENTENCE.replace("i", "\N{FULLWIDTH LATIN SMALL LETTER I}"), SENTENCE, True),
        *(
            (f"It began at noon. “{SENTENCE}{closing} Nobody.", SENTENCE, True)
            for closing in ('"', "’”", "»", ".)", ".]")
        ),
        ("", SENTENCE, False),
        ("Nobody wrote such a sentence about the transition of power.", SENTENCE, False),
        (SENTENCE[:60], SENTENCE, False),
        (SENTENCE.replace("not", "new"), SENTENCE, False),
        # Short ones occur in unrelated texts; but a whole text that is short, such as a headline, does count.
        ("Asked twice. He declined to comment. He left.", "He declined to comment.", False),
        ("Rates rise again", "RATES RISE AGAIN!", True),
        ("?!", "...", False),
        # Without spaces between words few letters make a sentence.
        (f"今天下雨了。{CHINESE}他没有回答其他问题。", CHINESE, True),
        ("今天下雨了。“双方将继续就此保持沟通。”他没有回答其他问题。", "“双方将继续就此保持沟通。”", True),
        ("今天下雨了。他没有回答。", "昨天下雨了。他没有回答。", False),
    ],
)
def test_a_sentence_is_found_in_any_case_layout_and_punctuation(text: str, known: str, *, shares: bool) -> None:
    """In both directions: the gold set may have documents, and the other texts sentences. A part of one is none."""
    assert shares is shares_sentence(text, sentences_of([known]))
    assert shares is shares_sentence(known, sentences_of([text]))


def test_a_wrapped_text_is_found() -> None:
    """Every text of the gold set, wrapped at 72 columns: alone, and as a paragraph of a longer text if it is not short."""
    gold = [json.loads(line)["text"] for line in DEFAULT_GOLD.read_text("utf-8").splitlines()]
    known = sentences_of(gold)
    wrapped = [textwrap.fill(text, 72) for text in gold]
    assert [] == [text for text in wrapped if not shares_sentence(text, known)]
    assert sum("\n" in text for text in wrapped) > 700
    within = [f"Before it.\n\n{text}\n\nAfter it." for text in wrapped if len(text) > 40]
    assert [] == [text for text in within if not shares_sentence(text, known)]


CONLL = """\
-DOCSTART- -X- -X- O

# sent_id = 1
Ana NNP B-NP B-PER
Ribeiro NNP I-NP I-PER
left VBD B-VP O
Lisbon NNP B-NP B-LOC
Porto NNP B-NP B-LOC
. . O O

Shares\tO
fell\tO
"""


def written(folder: Path, content: str) -> Path:
    """A file with this content."""
    path = folder / "gold"
    path.write_bytes(content.encode())
    return path


def test_columns_are_read_as_texts_with_entities(tmp_path: Path) -> None:
    """Two names side by side stay two, and a sentence without entities counts too."""
    gold = read_gold(written(tmp_path, CONLL), ["PER", "LOC"])
    assert ["Ana Ribeiro left Lisbon Porto .", "Shares fell"] == [text.text for text in gold.texts]
    found = [(text.text[each.start : each.end], each.label) for text in gold.texts for each in text.entities]
    assert [("Ana Ribeiro", "PER"), ("Lisbon", "LOC"), ("Porto", "LOC")] == found


def test_chinese_is_joined_without_spaces(tmp_path: Path) -> None:
    """A model would read other tokens in a text with spaces that nobody writes."""
    gold = read_gold(written(tmp_path, "自从\tO\n2004\tO\n年\tO\n台\tB-LOC\n北\tI-LOC\nA\tO\nB\tO\n"))
    assert "自从2004年台北A B" == gold.texts[0].text
    assert [(7, 9)] == [(each.start, each.end) for each in gold.texts[0].entities]


@pytest.mark.parametrize(
    ("content", "texts"),
    [
        ("\ufeff-DOCSTART- O\n\nAna B-PER\n", [("Ana", ["Ana"])]),
        ('\ufeff{"text": "Ana left", "entities": [{"start": 0, "end": 3, "label": "PER"}]}\n', [("Ana left", ["Ana"])]),
        ("# O\n1 O\nin O\nLisbon B-LOC\n", [("# 1 in Lisbon", ["Lisbon"])]),
        ("# Ana left\n# id 7 a\nAna B-PER\n", [("Ana", ["Ana"])]),
        ("10\u00a0000 O\nAna B-PER\na\u2028b O\n", [("10\u00a0000 Ana a\u2028b", ["Ana"])]),
        ("New York\tB-LOC\n\tO\nis\tO\t\n", [("New York is", ["New York"])]),
        ("Ana B-PER\r\n \r\nPorto B-LOC\r\n", [("Ana", ["Ana"]), ("Porto", ["Porto"])]),
    ],
)
def test_no_token_is_lost_split_or_moved(tmp_path: Path, content: str, texts: list[tuple[str, list[str]]]) -> None:
    """Marks of byte order, `#` as a token, spaces within tokens, other line ends and empty sentences occur in real sets."""
    found = read_gold(written(tmp_path, content)).texts
    assert texts == [(each.text, [each.text[one.start : one.end] for one in each.entities]) for each in found]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("Ana\n", "line 1: one column"),
        ("Ana B-PER\n\nid,text\n", "line 3: one column"),
        ("Ana B\n", "but not of what kind"),
        ("Ana B-MISC\n", "no model has the label 'MISC'"),
        ("Ana O\n", "has no entities"),
        ("1\tAna\tB-PER\tO\n2\tleft\tO\tO\n\n1\tPorto\tB-LOC\tO\n", "the first column only numbers the tokens"),
    ],
)
def test_what_cannot_be_read_is_refused(tmp_path: Path, content: str, problem: str) -> None:
    """Each message says where, and what was expected."""
    with pytest.raises(FatalError, match=problem):
        read_gold(written(tmp_path, content), ["PER", "LOC"])
