"""Which entries an entity may be, and which it is: strict, in order, and never a guess."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from enricher.worker.records import Article, Entity
from enricher.worker.rules.catalogue import Candidate, Entry, Mention, add_ids, name_keys

APPLE = Entry("apple", ("Apple Inc.", "Apple Computer"), frozenset({"ORG"}), context=("iPhone", "Tim Cook"))
RECORDS = Entry("records", ("Apple Records", "Apple"), frozenset({"ORG"}), context=("Beatles",), parent="emi")
EMI = Entry("emi", ("EMI",), frozenset({"ORG"}))
MERKEL = Entry("merkel", ("Angela Merkel",), frozenset({"PER"}))
SMITH = Entry("adam", ("Adam Smith", "Smith"), frozenset({"PER"}))
WILL = Entry("will", ("Will Smith",), frozenset({"PER"}))


def candidates(entries: Sequence[Entry], entity: Entity, language: str | None = None) -> list[Candidate]:
    """What an index of these entries finds."""
    mention = Mention(entity["text"], entity["label"])
    return [
        entry.candidate(match)
        for entry in entries
        if entry.is_for(entity["label"], language) and (match := entry.match(mention))
    ]


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


@pytest.mark.parametrize(
    ("text", "label", "match"),
    [
        ("APPLE inc.", "ORG", "name"),
        ("apple computer", "ORG", "alias"),
        ("Apple", "ORG", "folded"),
        ("Apple's", "ORG", "folded"),
        ("Apple Incorporated", "ORG", "folded"),
        ("Apple Ltd", "ORG", None),
        ("Apple", "PER", None),
        ("Apples", "ORG", None),
    ],
)
def test_how_a_text_matches_an_entry(text: str, label: str, match: str | None) -> None:
    """A legal form may be missing, but not be another; a plural is another name."""
    entity = Entity(field="body", start=0, end=len(text), text=text, label=label, score=1.0)
    assert [match] * bool(match) == [each.match for each in candidates([APPLE], entity)]


def test_the_legal_form_counts_for_organisations_alone() -> None:
    """`Apple` of another label is not `Apple Inc.`, whose entry is for all labels."""
    entry = Entry("apple", ("Apple Inc.",))
    for label, found in (("ORG", "folded"), ("MISC", None), ("PER", None)):
        assert found == entry.match(Mention("Apple", label))


def test_an_index_finds_each_name_that_matches() -> None:
    """The keys of a mention and of a name meet wherever the entry matches."""
    for text in ("Apple", "Apple Inc", "APPLE, INC.", "Apple’s"):
        mention = Mention(text, "ORG")
        assert APPLE.match(mention)
        assert mention.keys & name_keys("Apple Inc.", legal=True)


def test_a_language_leaves_out_entries_of_other_languages() -> None:
    """An article without a language may name all of them."""
    entry = Entry("x", ("Rat",), language="de")
    assert [True, True, False, True] == [entry.is_for("ORG", each) for each in ("de", "deu_Latn", "en", None)]


def test_of_several_candidates_all_are_listed_in_the_order_of_the_catalogue() -> None:
    """Nothing singles one out, so there is no id."""
    assert ["apple records"] == linked([APPLE, RECORDS], "Apple said so.", ("Apple", "ORG"))
    assert ["records apple"] == linked([RECORDS, APPLE], "Apple said so.", ("Apple", "ORG"))


def test_context_words_of_one_candidate_single_it_out() -> None:
    """Whole words, folded; in the title too; and none if two candidates have one."""
    both = [APPLE, RECORDS]
    assert ["apple/context"] == linked(both, "Apple sold an IPHONE.", ("Apple", "ORG"))
    assert ["apple/context"] == linked(both, "Apple grew, said Tim\nCook.", ("Apple", "ORG"))
    assert ["records/context"] == linked(both, "Apple is back.", ("Apple", "ORG"), title="Beatles, again")
    assert ["apple records"] == linked(both, "Apple sold iPhones.", ("Apple", "ORG"))
    assert ["apple records"] == linked(both, "Apple: iPhone and Beatles.", ("Apple", "ORG"))


def test_another_entity_of_the_article_singles_out_its_relatives() -> None:
    """The parent, wherever it stands in the article."""
    entries = [APPLE, RECORDS, EMI]
    assert ["records/related", "emi/only"] == linked(entries, "Apple left EMI.", ("Apple", "ORG"), ("EMI", "ORG"))
    full = "Apple Records was sold. Apple said so."
    assert ["records/only", "records/related"] == linked(entries, full, ("Apple Records", "ORG"), ("Apple", "ORG"))


def test_a_bare_surname_is_the_person_named_in_full_before() -> None:
    """Also with a possessive; not before that person was named."""
    text = "Angela Merkel met him. Merkel's party."
    assert ["merkel/only", "merkel/surname"] == linked([MERKEL], text, ("Angela Merkel", "PER"), ("Merkel's", "PER"))
    text = "Merkel is away. Angela Merkel said so."
    assert ["", "merkel/only"] == linked([MERKEL], text, ("Merkel", "PER"), ("Angela Merkel", "PER"))


def test_a_bare_surname_after_a_stranger_of_that_name_has_no_id() -> None:
    """The catalogue's `Smith` is another person than the one that the article is about."""
    assert ["adam/only"] == linked([SMITH], "Smith wrote it.", ("Smith", "PER"))
    text = "Zadie Smith wrote it. Smith is a novelist."
    assert ["", "adam"] == linked([SMITH], text, ("Zadie Smith", "PER"), ("Smith", "PER"))
    text = "Will Smith met Adam Smith. Smith laughed."
    assert ["will/only", "adam/only", "adam"] == linked(
        [SMITH, WILL], text, ("Will Smith", "PER"), ("Adam Smith", "PER"), ("Smith", "PER")
    )
    text = "Will Smith came. Smith laughed."
    assert ["will/only", "will/surname"] == linked([SMITH, WILL], text, ("Will Smith", "PER"), ("Smith", "PER"))


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
