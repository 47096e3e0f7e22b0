"""Names as people mark them in texts that went wrong: whatever the pieces of a tokenizer, spans are theirs."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from rules.building import GivenSpans, answer, entities_of, part_of
from rules.word_rule import is_alone

from enricher.worker.articles.mapping import join_paragraphs
from enricher.worker.heads.labels import LabelScheme, decode_entities
from enricher.worker.records import OwnedLabels, Ticket

CASES = [
    json.loads(line)
    for line in (Path(__file__).parent.parent / "data" / "texts" / "names.jsonl").read_text("utf-8").splitlines()
]
SCHEME = LabelScheme.from_labels(["O", "B-PER", "I-PER"])
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
    return join_paragraphs(body, "\n\n", 1_000) if isinstance(body, list) else str(body)


def labelled(text: str, names: list[str], spans: list[tuple[int, int]]) -> tuple[Ticket, list[tuple[int, int]]]:
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
    """Each name that a token of its own begins is found, with exactly its characters, and nothing else."""
    text = text_of(case)
    spans = [each.span() for each in PIECES[cut].finditer(text)]
    ticket, ranges = labelled(text, case["names"], spans)
    found = [(each["start"], each["end"]) for each in entities_of(ticket, SCHEME)]
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
    assert entities_of(ticket, SCHEME) == []
    ((answers,),) = ticket.answers
    assert isinstance(answers, OwnedLabels)
    assert ticket.article is not None
    assert ticket.tokens is not None
    assert decode_entities(ticket.article, ticket.tokens, [answers], SCHEME, skip_addresses=False)
