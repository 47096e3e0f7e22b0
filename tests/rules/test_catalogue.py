"""Which entries an entity may be, and which it is: strict, in order, and never a guess; and how names are folded."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import Literal, SupportsIndex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enricher.worker.records import Article, Entity
from enricher.worker.rules.catalogue import Candidate, Entry, Mention, add_ids, candidates_of
from enricher.worker.rules.folding import fold, fold_loosely, split_legal_form, without_possessive

APPLE = Entry("apple", ("Apple Inc.", "Apple Computer"), frozenset({"ORG"}), context=("iPhone", "Tim Cook"))
RECORDS = Entry("records", ("Apple Records", "Apple"), frozenset({"ORG"}), context=("Beatles",), parent="emi")
EMI = Entry("emi", ("EMI",), frozenset({"ORG"}))
MERKEL = Entry("merkel", ("Angela Merkel",), frozenset({"PER"}))
SMITH = Entry("adam", ("Adam Smith", "Smith"), frozenset({"PER"}))
WILL = Entry("will", ("Will Smith",), frozenset({"PER"}))


def candidates(entries: Sequence[Entry], entity: Entity, language: str | None = None) -> tuple[Candidate, ...]:
    """The candidates that an index of these entries finds."""
    return candidates_of(entries, Mention(entity["text"], entity["label"]), entity["label"], language)


def linked(entries: Sequence[Entry], body: str, *named: tuple[str, str], title: str = "") -> list[str]:
    """The ids of entities, named by text and label in their order: `ids`, or `id/why`."""
    found, at = list[Entity](), 0
    for text, label in named:
        at = body.index(text, at)
        found.append(Entity(field="body", start=at, end=at + len(text), text=text, label=label, score=1.0))
        at += len(text)
    add_ids(Article("1", title, body), found, [candidates(entries, each) for each in found])
    return [
        f"{each['id']}/{each['why']}" if "id" in each else " ".join(one["id"] for one in each.get("ids", ()))
        for each in found
    ]


WRITER = Entry("writer", ("Michael Jackson",), context=("whisky",))
GEORGE = Entry("george", ("Washington",), frozenset({"PER"}))
STATE = Entry("state", ("Washington",), frozenset({"LOC"}))
ZAPPA = Entry("zappa", ("Frank Zappa", "Frank"), frozenset({"PER"}))
SINATRA = Entry("sinatra", ("Frank Sinatra", "Frank"), frozenset({"PER"}), parent="emi")
TRUMP = Entry("trump", ("Donald Trump", "Trump"), frozenset({"PER"}))
ARMY = Entry("army", ("Korean People's Army", "KPA"), frozenset({"ORG"}))
PRESS = Entry("press", ("Kenya Press Association", "KPA"), frozenset({"ORG"}), context=("Nairobi",))
BOTH = [APPLE, RECORDS]
CASES = {
    "nothing singles one out": (BOTH, "{Apple} said so.", ["apple records"]),
    "all are listed in the order of the catalogue": ([RECORDS, APPLE], "{Apple} said so.", ["records apple"]),
    "a context word of one singles it out": (BOTH, "{Apple} sold an IPHONE.", ["apple/context"]),
    "it may have a line break": (BOTH, "{Apple} grew, said Tim\nCook.", ["apple/context"]),
    "it is a whole word": (BOTH, "{Apple} sold iPhones.", ["apple records"]),
    "two have one": (BOTH, "{Apple}: iPhone and Beatles.", ["apple records"]),
    "an entry with context words asks for one": ([WRITER], "{Michael Jackson/PER} likes whisky.", ["writer/context"]),
    "somebody of that name is in no catalogue": ([WRITER], "{Michael Jackson/PER} likes tea.", ["writer"]),
    "a label alone singles out nobody": ([GEORGE, STATE], "The Governor of {Washington/PER} spoke.", ["george"]),
    "nothing else has the name": ([GEORGE], "The Governor of {Washington/PER} spoke.", ["george/only"]),
    "the parent is in the article": ([APPLE, RECORDS, EMI], "{Apple} left {EMI}.", ["records/related", "emi/only"]),
    "the entry itself is": ([ARMY, PRESS], "{KPA}, the {Korean People's Army}.", ["army/related", "army/only"]),
    "a first name alone": ([ZAPPA], "{Frank/PER} sang.", ["zappa/only"]),
    "it is of another person": ([ZAPPA], "{Frank Messina/PER} wrote. {Frank/PER} sang.", ["", "zappa"]),
    "also of one named later": ([ZAPPA], "{Frank/PER} sang. {Frank Messina/PER} wrote.", ["zappa", ""]),
    "also beside a relative": (
        [ZAPPA, SINATRA, EMI],
        "{Frank/PER} of {EMI} sang. {Frank Messina/PER} wrote.",
        ["zappa sinatra", "emi/only", ""],
    ),
    "an alias before its full name": (
        [TRUMP],
        "{Trump/PER} spoke. {Donald Trump/PER} left. {Trump/PER} is away.",
        ["trump/only", "trump/only", "trump/surname"],
    ),
    "a bare surname of one named before": (
        [MERKEL],
        "{Angela Merkel/PER} met him. {Merkel's/PER} party.",
        ["merkel/only", "merkel/surname"],
    ),
    "of one named later": ([MERKEL], "{Merkel/PER} is away, {Angela Merkel/PER} said.", ["", "merkel/only"]),
    "of one of two entries": (
        [SMITH, WILL],
        "{Will Smith/PER} came. {Smith/PER} laughed.",
        ["will/only", "will/surname"],
    ),
    "of a stranger": ([SMITH], "{Zadie Smith/PER} wrote it. {Smith/PER} is a novelist.", ["", "adam"]),
    "of two": (
        [SMITH, WILL],
        "{Will Smith/PER} met {Adam Smith/PER}. {Smith/PER} laughed.",
        ["will/only", "adam/only", "adam"],
    ),
}
"""Entries, a text with its entities in braces, of organisations where no label is said, and what each is."""


@pytest.mark.parametrize("name", CASES)
def test_what_an_entity_is(name: str) -> None:
    """An id only where its name, its context, a relative or a full name leaves no other."""
    entries, text, expected = CASES[name]
    named = [(word, label or "ORG") for word, label in re.findall(r"{([^/}]+)(?:/(\w+))?}", text)]
    assert expected == linked(entries, re.sub(r"{([^/}]+)[^}]*}", r"\1", text), *named)


def test_a_context_word_may_be_in_the_title() -> None:
    """It is a part of the article."""
    assert ["records/context"] == linked(BOTH, "Apple is back.", ("Apple", "ORG"), title="Beatles, again")


def test_a_context_phrase_is_searched_once_for_all_entries() -> None:
    """A megabyte may name 100,000 entries, each with 20 phrases whose words it has, far from one another."""

    class Phrase(str):
        """Text that counts how often it is split."""

        __slots__ = ()
        splits = 0

        def split(self, sep: str | None = None, maxsplit: SupportsIndex = -1) -> list[str]:
            """Count, and split."""
            Phrase.splits += 1
            return super().split(sep, maxsplit)

    context = (Phrase("prime minister"),)
    found = [[Candidate(str(number), "name", context=context, alone=False)] for number in range(100)]
    oslo = [Entity(field="body", start=0, end=4, text="Oslo", label="LOC", score=1.0) for _ in found]
    add_ids(Article("1", "", "Oslo: a minister, prime."), oslo, found)
    assert 1 == Phrase.splits
    assert not any("id" in each for each in oslo)


@pytest.mark.parametrize(
    ("entry", "text", "label", "match"),
    [
        (APPLE, "APPLE inc.", "ORG", "name"),
        (APPLE, "apple computer", "ORG", "alias"),
        (APPLE, "Apple", "ORG", "folded"),
        (APPLE, "Apple’s", "ORG", "folded"),
        (APPLE, "Apple Incorporated", "ORG", "folded"),
        (APPLE, "Apple Ltd", "ORG", None),
        (APPLE, "Apple", "PER", None),
        (APPLE, "Apples", "ORG", None),
        (Entry("apple", ("Apple Inc.",)), "Apple", "ORG", "folded"),
        (Entry("apple", ("Apple Inc.",)), "Apple", "MISC", None),
    ],
)
def test_how_a_text_matches_an_entry(entry: Entry, text: str, label: str, match: str | None) -> None:
    """A legal form may be missing, of organisations alone, but not be another; a plural is another name."""
    entity = Entity(field="body", start=0, end=len(text), text=text, label=label, score=1.0)
    assert [match] * bool(match) == [each.match for each in candidates([entry], entity)]
    assert match is None or Mention(text, label).keys & entry.keys


def test_a_language_leaves_out_entries_of_other_languages() -> None:
    """An article without a language may name all of them."""
    entry = Entry("x", ("Rat",), language="de")
    assert [True, True, False, True] == [entry.is_for("ORG", each) for each in ("de", "deu_Latn", "en", None)]


def test_many_names_take_time_that_grows_with_their_number() -> None:
    """An article may name a surname ten thousand times, behind as many full names."""
    names = [("Will Smith", "PER"), ("Smith", "PER")] * 10_000
    body = "Will Smith. Smith. " * 10_000
    assert ["will/only", "will/surname"] * 10_000 == linked([SMITH, WILL], body, *names)


def test_an_id_is_one_of_the_ids_of_its_entity() -> None:
    """So that a consumer of `ids` alone misses none."""
    text = "Angela Merkel met him. Merkel left."
    entities = [
        Entity(field="body", start=at, end=at + len(name), text=name, label="PER", score=1.0)
        for name, at in (("Angela Merkel", 0), ("Merkel", 23))
    ]
    counts = add_ids(Article("1", "", text), entities, [candidates([MERKEL], each) for each in entities])
    assert [[{"id": "merkel", "match": "name"}], [{"id": "merkel", "match": "surname"}]] == [
        each["ids"] for each in entities
    ]
    assert {("PER", "matched"): 2} == counts


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Angela  Merkel\n", "ANGELA MERKEL"),
        ("L\u2019Or\u00e9al", "L'OR\u00c9AL"),
        ("O\u00b4Brien", "O`Brien"),
        ("Jean\u2013Luc", "jean\u2010luc"),
        ("\uff21\uff22\uff23\u3000News", "abc news"),
        ("Stra\u00dfe", "STRASSE"),
        ("Dai\u00adly\u200b Mail\ufeff", "daily mail"),
        ("\u202b\u0645\u0631\u064a\u0645\u202c", "\u0645\u0631\u064a\u0645"),
        ("\u00e9", "e\u0301"),
    ],
)
def test_the_first_step_is_form_case_space_apostrophes_and_dashes(one: str, other: str) -> None:
    """These are one name in two spellings."""
    assert fold(one) == fold(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [("Müller", "Muller"), ("Łódź", "Lodz"), ("Ørsted", "orsted"), ("İstanbul", "istanbul"), ("مُحَمَّد", "محمد")],
)
def test_diacritics_are_the_second_step(one: str, other: str) -> None:
    """They differ after the first one."""
    assert fold(one) != fold(other)
    assert fold_loosely(fold(one)) == fold_loosely(fold(other))


@pytest.mark.parametrize(
    ("one", "other"),
    [("Germans", "German"), ("U.S.", "US"), ("Müller", "Mueller"), ("कि", "कु"), ("AT&T", "AT & T"), ("が", "か")],
)
def test_no_step_folds_these(one: str, other: str) -> None:
    """Inflection, punctuation, transliteration, and marks that are letters of their script."""
    assert fold_loosely(fold(one)) != fold_loosely(fold(other))


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("apple inc.", ("apple", "inc")),
        ("apple, incorporated", ("apple", "inc")),
        ("acme gmbh & co. kg", ("acme", "gmbh co kg")),
        ("nestle s.a.", ("nestle", "sa")),
        ("maersk a/s", ("maersk", "as")),
        ("co", ("co", "")),
        ("inc. co.", ("inc. co.", "")),
        ("apple", ("apple", "")),
        ("incorporated apple", ("incorporated apple", "")),
    ],
)
def test_a_legal_form_is_at_the_end_and_never_all(name: str, split: tuple[str, str]) -> None:
    """A name of forms alone stays as it is."""
    assert split == split_legal_form(name)


def test_possessives_end_with_an_apostrophe() -> None:
    """A plural stays."""
    shown = {"apple's": "apple", "reuters'": "reuters", "reuters": "reuters", "rock 'n' roll'": "rock 'n' roll'"}
    assert list(shown.values()) == [without_possessive(each) for each in shown]


@given(st.text(max_size=40))
def test_folding_is_stable_and_only_the_second_step_adds_to_the_first(text: str) -> None:
    """Texts that are equal after the first step are equal after the second; ASCII takes a shorter way to the same text."""
    folded = fold(text)
    assert fold_loosely(folded) == fold_loosely(fold(unicodedata.normalize("NFC", text)))
    assert " ".join(folded.split()) == folded
    assert fold("é " + text) == fold("é") + (" " + folded if folded else "")


def test_a_run_of_marks_takes_no_time_with_its_square(monkeypatch: pytest.MonkeyPatch) -> None:
    """Normalizing sorts it by insertion: a million marks of an article take 760 s, in which no other thread runs."""
    lengths, normalize = list[int](), unicodedata.normalize

    def noted(form: Literal["NFC", "NFD", "NFKC", "NFKD"], text: str) -> str:
        lengths.append(len(text))
        return normalize(form, text)

    monkeypatch.setattr(unicodedata, "normalize", noted)
    fold_loosely(fold("a" + "\u0301\u0323" * 5_000))
    assert max(lengths) <= 2_000
