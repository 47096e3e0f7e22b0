"""Labels -> entities: the rule, one small case each; the reference; names as people mark them; and any labels."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rules.building import GivenSpans, answer, entities_of, part_of, raw, spans_of_words
from rules.word_rule import is_alone
from support.models import open_minilm

from enricher.worker.articles.mapping import join_paragraphs
from enricher.worker.heads.labels import LabelScheme, decode_entities
from enricher.worker.inference.tokenizer.article_tokenizer import ArticleTokenizer
from enricher.worker.records import Article, Entity, OwnedLabels, Ticket

REFERENCE = Path(__file__).parent.parent / "data" / "reference"
GOLD = Path(__file__).parents[2] / "enricher" / "models" / "gold"
LABELS = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
SCHEME = LabelScheme.from_labels(LABELS)


def labelled(body: str, labels: str, title: str = "") -> Ticket:
    """One token a word; `labels` names each word's label, title first."""
    ticket = part_of(title, body, spans_of_words(title), spans_of_words(body))
    answer(ticket, [LABELS.index(label) for label in labels.split()])
    return ticket


def found(ticket: Ticket) -> list[tuple[str, str]]:
    """Text and label of each entity."""
    return [(entity["text"], entity["label"]) for entity in entities_of(ticket, SCHEME)]


def test_the_first_token_of_a_word_decides_for_the_whole_word() -> None:
    """Later pieces neither end, nor open, nor change anything; the span reaches to the end of the last piece."""
    pieces = GivenSpans([(0, 2), (2, 8), (9, 11), (11, 13), (13, 14)])
    ticket = part_of("", "Lovelace wrote", spans_of_words(""), pieces)
    answer(ticket, [1, 3, 0, 1, 1])
    assert [("Lovelace", "PER")] == found(ticket)


def test_title_and_body_are_never_joined() -> None:
    """An entity at the end of the title and one of the same type at the start of the body are two, each in its field."""
    ticket = labelled("Lovelace wrote", "O B-PER I-PER O", title="about Ada")
    assert [("title", 6, 9, "Ada"), ("body", 0, 8, "Lovelace")] == [
        (entity["field"], entity["start"], entity["end"], entity["text"]) for entity in entities_of(ticket, SCHEME)
    ]


def test_white_space_is_no_part_of_an_entity() -> None:
    """Some tokenizers count the space before a word as the word's own; of white space alone nothing is left."""
    ticket = part_of("", "in  New York\u00a0 now", spans_of_words(""), GivenSpans([(0, 2), (2, 7), (7, 14), (14, 18)]))
    answer(ticket, [0, 3, 4, 0])
    (entity,) = entities_of(ticket, SCHEME)
    assert (4, 12, "New York") == (entity["start"], entity["end"], entity["text"])
    ticket = part_of("", "a   b", spans_of_words(""), GivenSpans([(0, 1), (1, 4), (4, 5)]))
    answer(ticket, [0, 1, 0])
    assert found(ticket) == []


@pytest.mark.parametrize("name", ["Zoe\u0301", "हिन्दी Ada", "Ａｄａ", "\U0001d4d0da"])
def test_offsets_count_code_points(name: str) -> None:
    """Combining characters and letters beyond the basic plane: the span cuts the original text exactly."""
    text = f"here 👩\u200d👩\u200d👧 {name} is"
    words = len(name.split())
    (entity,) = entities_of(labelled(text, "O O " + "B-PER " + "I-PER " * (words - 1) + "O"), SCHEME)
    assert (name, 11, 11 + len(name)) == (entity["text"], entity["start"], entity["end"])


def test_the_score_is_the_mean_of_the_words_first_tokens() -> None:
    """0.5 and 1.0 make 0.75, for the last entity and for one before it."""
    ticket = labelled("Ada Lovelace met Ada Lovelace", "B-PER I-PER O B-PER I-PER")
    answer(ticket, [1, 2, 0, 1, 2], [0.5, 1.0, 1.0, 0.5, 1.0])
    assert [0.75, 0.75] == [entity["score"] for entity in entities_of(ticket, SCHEME)]


@given(score=st.floats(0, 1, width=32))
@example(score=1.00003).via("devices compute probabilities with rounding errors; no indexer shall see more than 1")
def test_scores_are_told_to_the_fourth_decimal(score: float) -> None:
    """As Python itself rounds it, whatever float32 the model gave; a number of Python, which JSON takes."""
    ticket = labelled("Ada", "B-PER")
    answer(ticket, [1], [score])
    (entity,) = entities_of(ticket, SCHEME)
    assert (float, round(min(score, 1.0), 4)) == (type(entity["score"]), entity["score"])


def test_an_entity_has_its_names_in_the_order_in_which_they_are_written() -> None:
    """The bytes of a record are a contract, and this very dictionary is written."""
    (entity,) = entities_of(labelled("Ada", "B-PER"), SCHEME)
    assert [*entity] == list(Entity.__annotations__)[: len(entity)], "what a catalogue or a task adds comes behind"


CHARACTERS = st.sampled_from("aB \u0301\u00a0\n👩\u200d中\U0001d4d0")


@st.composite
def any_parts(draw: st.DrawFn) -> Ticket:
    """Texts of any characters, cut into any tokens, with any labels."""
    parts = []
    for _ in range(2):
        text = "".join(draw(st.lists(CHARACTERS, max_size=30)))
        cuts = sorted(draw(st.sets(st.integers(0, len(text)), max_size=12)))
        chars = [(start, draw(st.integers(start, stop))) for start, stop in pairwise(cuts)]
        parts.append((text, GivenSpans(chars)))
    (title, title_spans), (body, body_spans) = parts
    ticket = part_of(title, body, title_spans, body_spans)
    length = len(title_spans.chars) + len(body_spans.chars)
    answer(ticket, draw(st.lists(st.integers(0, 4), min_size=length, max_size=length)))
    return ticket


@given(any_parts())
def test_spans_are_ordered_apart_and_inside_their_field(ticket: Ticket) -> None:
    """Whatever the labels: half-open, not empty, trimmed, in order, never overlapping, and the text is the field's."""
    assert ticket.article is not None
    ends = {"title": 0, "body": 0}
    entities = entities_of(ticket, SCHEME)
    assert sorted(entities, key=lambda entity: entity["field"] != "title") == entities
    for entity in entities:
        text = ticket.article.text(entity["field"])
        assert ends[entity["field"]] <= entity["start"] < entity["end"] <= len(text)
        assert entity["text"] == text[entity["start"] : entity["end"]] == entity["text"].strip()
        ends[entity["field"]] = entity["end"]


def read_lines(path: Path) -> list[dict[str, Any]]:
    """JSON lines."""
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def test_all_sentences_of_the_reference_give_exactly_its_spans() -> None:
    """1,000 sentences through the real tokenizer, with the reference's logits: every span, label and text is the same.

    Where the words of the text are not the tokenizer's, pud_spans_by_words.jsonl has the spans.
    """
    sentences, wanted = read_lines(GOLD / "pud.jsonl"), read_lines(REFERENCE / "pud_spans.jsonl")
    by_words = {each["id"]: each for each in read_lines(REFERENCE / "pud_spans_by_words.jsonl")}
    arrays = np.load(REFERENCE / "pud_logits.npz")
    labels = np.split(arrays["logits"].argmax(axis=1).astype(np.int32), np.cumsum(arrays["lengths"])[:-1])
    minilm = open_minilm()
    tokenizer = ArticleTokenizer(minilm, max_article_tokens=100_000)
    articles = [Article(sentence["id"], "", sentence["text"]) for sentence in sentences]
    scheme = LabelScheme.from_labels(minilm.labels)
    counts: Counter[str] = Counter()
    for article, tokens, its_labels, its_wanted in zip(
        articles, tokenizer.tokenize(articles), labels, wanted, strict=True
    ):
        assert not isinstance(tokens, Exception)
        ticket = Ticket(raw(0), 0.0, article, tokens=tokens)
        answer(ticket, its_labels[1:-1].tolist())
        spans = [
            {"start": entity["start"], "end": entity["end"], "label": entity["label"], "text": entity["text"]}
            for entity in entities_of(ticket, scheme)
        ]
        assert by_words.pop(article.id, its_wanted) == {"id": article.id, "entities": spans}
        counts.update(entity["label"] for entity in its_wanted["entities"])
    assert not by_words
    assert counts.total() > 1_000
    assert len(counts) == 3


CASES = [
    json.loads(line)
    for line in (Path(__file__).parent.parent / "data" / "texts" / "names.jsonl").read_text("utf-8").splitlines()
]
PERSONS = LabelScheme.from_labels(["O", "B-PER", "I-PER"])
PIECES = {
    "white space": re.compile(r"\S+"),
    "spaces before": re.compile(r"\s?\S+"),
    "letters": re.compile(r"\w+|[^\w\s]"),
    "spaced letters": re.compile(r"\s?\w+|\s?[^\w\s]"),
    "characters": re.compile(r"\S"),
    "pairs": re.compile(r"\S\S?"),
    "a mark before": re.compile(r"[^\w\s]?\w+|[^\w\s]"),
}
"""Ways to cut a text into tokens."""


def text_of(case: Mapping[str, object]) -> str:
    """The body, joined as the worker does it."""
    body = case["body"]
    return join_paragraphs(body, 1_000) if isinstance(body, list) else str(body)


def marked(text: str, names: list[str], spans: list[tuple[int, int]]) -> tuple[Ticket, list[tuple[int, int]]]:
    """A part whose tokens have the labels of a model that finds every name, and where the names are."""
    ranges, at = list[tuple[int, int]](), 0
    for name in names:
        at = text.index(name, at)
        ranges.append((at, at + len(name)))
        at += len(name)
    ticket = part_of("", text, GivenSpans(), GivenSpans(spans))
    labels = []
    for start, end in spans:
        first = next((char for char in range(start, end) if text[char].isalnum()), start)
        found = next((each for each in ranges if each[0] <= first < each[1]), None)
        before = "" if found is None else text[found[0] : first]
        labels.append(0 if found is None else 2 if any(map(str.isalnum, before)) else 1)
    answer(ticket, labels)
    return ticket, ranges


PAIRS = [
    (case, cut) for case in CASES for cut in PIECES if cut == "characters" or not any(map(is_alone, text_of(case)))
]
"""In scripts without spaces, tokens that are longer than a letter may have more than a name."""


@pytest.mark.parametrize(("case", "cut"), PAIRS, ids=[f"{case['why']}, by {cut}" for case, cut in PAIRS])
def test_names_are_marked_as_people_mark_them(case: dict[str, list[str]], cut: str) -> None:
    """Each name is found whose first letter begins a token, with exactly its characters, and nothing else."""
    text = text_of(case)
    spans = [each.span() for each in PIECES[cut].finditer(text)]
    ticket, ranges = marked(text, case["names"], spans)
    found = [(each["start"], each["end"]) for each in entities_of(ticket, PERSONS)]
    begun = [each for each in ranges if any(_begins(text, chars, each) for chars in spans)]
    assert set(begun) <= set(found) <= set(ranges)
    if cut not in {"white space", "spaces before", "pairs"}:
        assert ranges == found


def _begins(text: str, chars: tuple[int, int], name: tuple[int, int]) -> bool:
    """Whether the first letter of a token is the first one of the name."""
    return next((char for char in range(*chars) if text[char].isalnum()), None) == name[0]


@pytest.mark.parametrize("cut", PIECES)
def test_nothing_is_found_in_addresses_unless_it_is_wanted(cut: str) -> None:
    """With every token labelled: no part of the URL or of the e-mail address; with the setting off, both."""
    text = "https://www.berlin.de/angela-merkel angela.merkel@paris.fr"
    spans = [each.span() for each in PIECES[cut].finditer(text)]
    ticket = part_of("", text, GivenSpans(), GivenSpans(spans))
    answer(ticket, [1] * len(spans))
    assert entities_of(ticket, PERSONS) == []
    ((answers,),) = ticket.answers
    assert isinstance(answers, OwnedLabels)
    assert ticket.article is not None
    assert ticket.tokens is not None
    assert decode_entities(ticket.article, ticket.tokens, [answers], PERSONS, skip_addresses=False)
