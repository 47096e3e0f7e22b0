"""Names in a text: borders, overlaps, the longest one, offsets; and against a search that tries every range."""

from __future__ import annotations

import tracemalloc
from collections.abc import Collection, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rules.building import Counting
from rules.test_word_rule import TEXTS
from rules.word_rule import words

from enricher.worker.files.name_tries import NameTries
from enricher.worker.records import Article, Entity
from enricher.worker.rules.borders import has_border
from enricher.worker.rules.folding import Spelling, fold
from enricher.worker.rules.text_search import LengthsAt, names_in, new_entities
from enricher.worker.rules.words import WordBorders


def lengths_of(*names: str) -> LengthsAt:
    """The tries of these names."""
    tries = NameTries()
    tries.add(Spelling(each).text for each in names)
    tries.build()
    return tries.lengths_at


def found(text: str, *names: str, taken: Collection[str] = ()) -> list[str]:
    """The names that are found in a body; `taken`: what the model found there."""
    entities = [
        Entity(field="body", start=text.index(each), end=text.index(each) + len(each), text=each, label="X", score=0.5)
        for each in taken
    ]
    new = [*new_entities(Article("1", "", text), entities, lengths_of(*names), lambda _: "ORG")]
    assert all(text[each["start"] : each["end"]] == each["text"] for each in new)
    return [each["text"] for each in new]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Reuters said", "Reuters"),
        ("by Reuters's man, (Reuters)", "Reuters"),
        ("l'Elysée and d'Emmanuel", "Emmanuel"),
        ("a Paris-based firm", "Paris"),
        ("of Apple Inc. The", "Apple Inc."),
        ("the .NET one", ".NET"),
        ("Ben & Jerry's ice", "Ben & Jerry's"),
        ("\U0001f469\U0001f3fd\U0001d4d0 Reuters", "Reuters"),
        ("昨日、北京大学校长说", "北京大学"),
        ("苹果Apple公司", "Apple"),
        ("これはトヨタです", "トヨタ"),
        ("قال محمد بن سلمان،", "محمد بن سلمان"),
        ("אמר בנק הפועלים.", "בנק הפועלים"),
        ("в России", "России"),
        ("İstanbul'un", "İstanbul'un"),
    ],
)
def test_a_name_is_found_between_the_borders_of_words(text: str, name: str) -> None:
    """In any script, beside quotes, brackets and possessives, behind characters beyond 16 bits."""
    assert name in found(text, name)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Reutersville, AReuters", "Reuters"),
        ("reuters, REUTERS", "Reuters"),
        ("Stratford-upon-Avon", "Stratford"),
        ("Ankara'da", "Ankara"),
        ("Jose\u0323 said", "Jose"),  # a mark is no border
        ("istanbul, ISTANBUL, Istanbul", "İstanbul"),
        ("トヨタホーム と ムトヨタ", "トヨタ"),
        ("Deutsche\n\nBank, Deutsche\tBank", "Deutsche Bank"),
        ("Deutsche\n\u200b\nBank, Deutsche\n \u00ad\u200e \nBank", "Deutsche Bank"),
        ("https://example.org/Reuters/x info@Reuters.com", "Reuters"),
        ("서울에서", "서울"),
    ],
)
def test_a_part_of_a_word_is_no_name(text: str, name: str) -> None:
    """Nor is another case, a name across paragraphs or cells, or one in an address."""
    assert [] == found(text, name)


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("Emmanuel\n   Macron", "Emmanuel Macron"),
        ("Emmanuel\u00a0Macron", "Emmanuel  Macron"),
        ("Emmanuel \u200b\u00ad \u200c Macron", "Emmanuel Macron"),
        ("L\u2019Ore\u0301al", "L'Or\u00e9al"),
        ("Jean\u2011Luc", "Jean-Luc"),
        ("Dai\u00adly Mail", "Daily Mail"),
        ("\uff21\uff22\uff23 News", "ABC News"),
        ("Ka\ufb01ne", "Kafine"),
        ("\u1112\u1161\u11ab\u1100\u1173\u11af\u1112\u1161\u11ab", "한글한"),
        ("\uff7f\uff8c\uff84\uff8a\uff9e\uff9d\uff78", "ソフトバンク"),
        ("\u09a2\u09cb\u09ae\u09a8", "\u09a2\u09c7\u09be\u09ae\u09a8"),  # a vowel sign of two
        ("\u202bמרים כהן", "מרים כהן"),
        ("O`Brien", "O\u00b4Brien"),
    ],
)
def test_a_name_may_be_written_otherwise(written: str, name: str) -> None:
    """Offsets are those of the text as it was published, marks and what nobody sees included."""
    for before in ("", "\U0001d4d0\u0301 …½\u200b ", "\ufb01\u00ad\n\n "):
        text = f"{before}{written} said"
        assert [fold(name)] == list(map(fold, found(text, name)))


def test_the_longest_of_the_leftmost_names_is_found() -> None:
    """And if a longer one has no border, a shorter one."""
    names = ("Ann", "Anna Smith", "Smith Bank", "New York", "New York Times", "York Times")
    assert ["Anna Smith"] == found("Anna Smith Bank", *names)
    assert ["Ann"] == found("Ann Anna Smithson", "Ann", "Ann Anna Smith")
    assert ["New York Times", "Ann"] == found("New York Times Ann", *names)


def test_no_name_touches_an_entity() -> None:
    """Inside it, around it or across its ends; and no shorter name comes instead, because there the model read another."""
    names = ("Bank of England", "England", "Bank")
    assert [] == found("The Bank of England.", *names, taken=["England"])
    assert [] == found("The Bank of England.", *names, taken=["The Bank of England"])
    assert ["Bank"] == found("The Bank of England", *names[1:], taken=["England"])
    title = Entity(field="title", start=0, end=4, text="Bank", label="ORG", score=1.0)
    new = [*new_entities(Article("1", "Bank", "Bank"), [title], lengths_of("Bank"), lambda _: "ORG")]
    expected = {"field": "body", "start": 0, "end": 4, "text": "Bank", "label": "ORG", "score": 1.0}
    assert [expected | {"source": "catalogue"}] == new


def test_a_name_of_no_entry_for_the_article_gives_way_to_a_shorter_one() -> None:
    """Such as one for another language."""
    search = names_in("Bank of England", lengths_of("Bank", "Bank of England"), {"Bank": "ORG"}.get)
    assert [(0, 4, "ORG")] == [*search]


def naive(text: str, names: Sequence[str]) -> list[tuple[int, int]]:
    """Every range of the text, the leftmost and then longest ones that are a name."""
    spelled = {Spelling(each).text for each in names}
    starts, ends = ({word[side] for word in words(text)} for side in (0, 1))
    ranges, past = [], 0
    for start in sorted(starts):
        for end in sorted(ends, reverse=True):
            if past <= start < end and Spelling(text[start:end]).text in spelled and not has_border(text[start:end]):
                ranges.append((start, end))
                past = end
                break
    return ranges


PIECES = (
    "Ann",
    "Anna",
    "Ann's",
    " ",
    "  ",
    "\n",
    "é",
    "e\u0301",
    "中",
    "\U0001d4d0",
    "-",
    "’",
    "…",
    "A\u00adnn",
    "ﬁ",
    "a.",
    "한",
)


@given(
    st.lists(st.sampled_from(PIECES), max_size=14).map("".join),
    st.lists(st.lists(st.sampled_from(PIECES), min_size=1, max_size=4).map("".join), max_size=8),
)
def test_the_search_finds_what_a_naive_one_finds(text: str, drawn: list[str]) -> None:
    """Names are pieces of the same kind as the text, so many of them are in it, and inside one another."""
    spelled = {Spelling(each).text.strip() for each in drawn}
    names = [each for each in spelled if len(each) >= 3]
    assert naive(text, names) == [(start, end) for start, end, _ in names_in(text, lengths_of(*names), lambda _: "ORG")]


def test_a_name_with_very_many_invisible_characters_is_not_found() -> None:
    """All ranges around them, each a candidate, would be read whole."""
    names = lengths_of("Anna", "Anna Smith")
    assert ["Anna"] == found(f"Anna{chr(0xAD) * 200} Smith", "Anna", "Anna Smith")
    assert [] == [*names_in(f"An{chr(0xAD) * 200}na", names, lambda _: "PER")]


@given(TEXTS)
def test_a_spelling_knows_where_its_characters_were(text: str) -> None:
    """A range of it, spelled alone, is the same; and all of it is the text after the first step, but for case."""
    spelling = Spelling(text)
    assert fold(text) == fold(spelling.text)
    for start in range(len(spelling.text)):
        place = spelling.source_range(start, start + 1)
        if place:
            assert spelling.text[start : start + 1] == Spelling(text[slice(*place)]).text


@given(TEXTS)
def test_borders_are_those_of_the_words(text: str) -> None:
    """For each pair of a start and an end behind it, as long as starts increase."""
    found_words = words(text)
    starts, ends = ({word[side] for word in found_words} for side in (0, 1))
    borders = WordBorders(text)
    for start, char in enumerate(text):
        for end in range(start + 1, len(text) + 1) if not char.isspace() else ():
            assert (start in starts and end in ends) is borders.are_at(start, end)


def test_borders_take_a_few_bytes_for_each_character() -> None:
    """Also in a text of brackets, each of which is a word."""
    text = "(" * 100_000 + "Reuters"
    tracemalloc.start()
    try:
        assert WordBorders(text).are_at(100_000, len(text))
        assert tracemalloc.get_traced_memory()[1] < 20 * len(text)
    finally:
        tracemalloc.stop()


def test_a_trie_has_each_name_once_and_none_that_folding_made_too_long() -> None:
    """Names in one another, five of one spelling, and one of 200 characters that become 3,600."""
    tries = NameTries()
    tries.add(["Ann", "Anna", "Anna Smith", *["Anna"] * 5, "\ufdfa" * 200, "\U0001d4d0" * 200])
    tries.add(Spelling(each).text for each in ("\ufdfa" * 200, "\U0001d4d0" * 200))
    tries.build()
    assert 6 == tries.names
    assert [3, 4, 10] == tries.lengths_at("An Anna Smithson", 3)
    assert 200 == tries.lengths_at("A" * 300, 0)[-1]
    assert [] == [*tries.lengths_at("Bob", 0), *tries.lengths_at("Ann"[:2], 0), *tries.lengths_at("", 0)]


@pytest.mark.parametrize(
    ("unit", "names"),
    [
        ("a", ["a" * length for length in range(3, 201)]),
        ("NASA/Xy/", ["NASA/X", "NASA/Xy/NASA/X"]),
        ("中", ["中" * length for length in range(4, 201)]),
        ("a\u0301", ["á" * length for length in range(3, 201)]),
        ("aaaa ", ["aaaa " * count + "b" for count in range(1, 40)]),
        ("aaaa a", ["aaaa aaaaa"[:length] for length in range(3, 10)]),
        ("@/Reuters", ["Reuters"]),
    ],
    ids=["one word", "one chunk", "no spaces", "two code points", "no end", "no border", "no address"],
)
def test_hostile_texts_are_searched_in_linear_time(unit: str, names: list[str]) -> None:
    """One letter, and names that are in one another: characters are taken out a bounded number of times."""
    text = Counting(unit * (20_000 // len(unit)))
    Counting.taken = 0
    ranges = [*names_in(text, lengths_of(*names), lambda _: "ORG")]
    assert len(ranges) <= len(text) / 3
    assert Counting.taken < 1_000 * len(text)
