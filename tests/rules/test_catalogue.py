"""Which entries an entity may be, and which it is: strict, in order, and never a guess."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from enricher.worker.records import Article, Entity
from enricher.worker.rules.catalogue import Candidate, Entry, Mention, add_ids, candidates_of

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
        assert mention.keys & Entry("apple", ("Apple Inc.",)).keys


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


def test_an_entry_with_context_words_asks_for_one() -> None:
    """Somebody of that name may be in no catalogue."""
    entry = Entry("writer", ("Michael Jackson",), context=("whisky",))
    text = "Michael Jackson likes whisky."
    assert ["writer/context"] == linked([entry], text, ("Michael Jackson", "PER"))
    assert ["writer"] == linked([entry], text.replace("whisky", "tea"), ("Michael Jackson", "PER"))


def test_a_label_alone_singles_out_nobody() -> None:
    """`Governor of Washington` may be labelled as a person: the place of that name forbids an id."""
    entries = [
        Entry("george", ("Washington",), frozenset({"PER"})),
        Entry("state", ("Washington",), frozenset({"LOC"})),
    ]
    text = "The Governor of Washington spoke."
    assert ["george"] == linked(entries, text, ("Washington", "PER"))
    assert ["george/only"] == linked(entries[:1], text, ("Washington", "PER"))


def test_a_first_name_of_a_person_in_the_article_is_nobody_else() -> None:
    """Also if the article names that person in full later."""
    entries = [Entry("zappa", ("Frank Zappa", "Frank"), frozenset({"PER"}))]
    assert ["zappa/only"] == linked(entries, "Frank sang.", ("Frank", "PER"))
    text = "Frank Messina wrote it. Frank sang."
    assert ["", "zappa"] == linked(entries, text, ("Frank Messina", "PER"), ("Frank", "PER"))
    two = [*entries, Entry("sinatra", ("Frank Sinatra", "Frank"), frozenset({"PER"}), parent="emi"), EMI]
    text = "Frank of EMI sang. Frank Messina wrote it."
    assert ["zappa sinatra", "emi/only", ""] == linked(
        two, text, ("Frank", "PER"), ("EMI", "ORG"), ("Frank Messina", "PER")
    )
    text = "Frank sang. Frank Messina wrote it."
    assert ["zappa", ""] == linked(entries, text, ("Frank", "PER"), ("Frank Messina", "PER"))


def test_an_alias_before_its_full_name_is_that_person() -> None:
    """Later full names leave an id if they are of the same person."""
    entries = [Entry("trump", ("Donald Trump", "Trump"), frozenset({"PER"}))]
    text = "Trump spoke. Donald Trump left. Trump is away."
    assert ["trump/only", "trump/only", "trump/surname"] == linked(
        entries, text, ("Trump", "PER"), ("Donald Trump", "PER"), ("Trump", "PER")
    )


def test_many_names_take_time_that_grows_with_their_number() -> None:
    """An article may name a surname ten thousand times, behind as many full names."""
    names = [("Will Smith", "PER"), ("Smith", "PER")] * 10_000
    body = "Will Smith. Smith. " * 10_000
    assert ["will/only", "will/surname"] * 10_000 == linked([SMITH, WILL], body, *names)


def test_another_entity_of_the_article_singles_out_its_relatives() -> None:
    """The parent, wherever it stands in the article."""
    entries = [APPLE, RECORDS, EMI]
    assert ["records/related", "emi/only"] == linked(entries, "Apple left EMI.", ("Apple", "ORG"), ("EMI", "ORG"))
    armies = [
        Entry("army", ("Korean People's Army", "KPA"), frozenset({"ORG"})),
        Entry("press", ("Kenya Press Association", "KPA"), frozenset({"ORG"}), context=("Nairobi",)),
    ]
    text = "The KPA is the Korean People's Army."
    assert ["army/related", "army/only"] == linked(armies, text, ("KPA", "ORG"), ("Korean People's Army", "ORG"))


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
