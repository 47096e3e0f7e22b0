"""Labels: every way to write position and kind is read, as a grammar reads it; what would be read wrongly is refused."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rules.building import answer, entities_of, part_of, spans_of_words

from enricher.errors import ModelError
from enricher.worker.heads.labels import LabelScheme, class_names, label_names

KINDS = ("PER", "LOC")
SCHEMES = {"IO": "I", "IOB1": "BI", "IOB2": "BI", "BIOES": "BIES", "BILOU": "BILU", "BMES": "BMES", "plain": "-"}
"""The positions of each scheme; a plain label is a kind without one."""


class Span(NamedTuple):
    """An entity, in words: `[start, stop)`."""

    start: int
    stop: int
    kind: str


def labels_of(name: str) -> list[str]:
    """The labels of a scheme, as config.json has them."""
    return ["O", *(kind if letter == "-" else f"{letter}-{kind}" for kind in KINDS for letter in SCHEMES[name])]


def decoded(name: str, labels: list[str]) -> list[Span]:
    """What the worker makes of these labels, one for each word: with words of one letter, word `n` stands at `2 n`."""
    written = labels_of(name)
    text = " ".join("a" * len(labels))
    part = part_of("", text, spans_of_words(""), spans_of_words(text))
    answer(part, [written.index(label) for label in labels])
    found = entities_of(part, LabelScheme.from_labels(label_names(dict(enumerate(written)))))
    return [Span(entity["start"] // 2, (entity["end"] + 1) // 2, entity["label"]) for entity in found]


# An entity of one kind: a single word; or words after a beginning, as far as they go on, and perhaps an end; or a lone end.
# The letters of BILOU and BMES are those of BIOES by other names, and a plain kind is an I.
_ENTITY = "S|[BI]I*E?|E"
_AS_BIOES = str.maketrans("LUM-", "ESII")


def parsed(labels: list[str]) -> list[Span]:
    """The grammar as a regular expression, over one letter for each word: of the second kind in lower case."""
    letters = []
    for label in labels:
        letter, _, kind = label.rpartition("-")
        read = (letter or "I").translate(_AS_BIOES)
        letters.append(" " if label == "O" else read if kind == KINDS[0] else read.lower())
    found = re.finditer(f"{_ENTITY}|{_ENTITY.lower()}", "".join(letters))
    return [Span(*match.span(), KINDS[match[0].islower()]) for match in found]


@st.composite
def any_labels(draw: st.DrawFn) -> tuple[str, list[str]]:
    """A scheme, and labels of it in any order."""
    name = draw(st.sampled_from(sorted(SCHEMES)))
    return name, draw(st.lists(st.sampled_from(labels_of(name)), max_size=12))


@given(any_labels())
def test_any_labels_are_read_as_the_grammar_reads_them(drawn: tuple[str, list[str]]) -> None:
    """Also those of no well-formed sequence: ends without a beginning, beginnings that nothing closes.

    Each labelled word is in exactly one entity, which has its label: no word is lost or taken twice.
    """
    name, labels = drawn
    spans = decoded(name, labels)
    assert parsed(labels) == spans
    words = {word: span.kind for span in spans for word in range(span.start, span.stop)}
    assert {word: label.rpartition("-")[2] for word, label in enumerate(labels) if label != "O"} == words
    assert len(words) == sum(span.stop - span.start for span in spans)


BIOES = ["O", "B-a", "I-a", "E-a", "S-a"]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["O", "B-PER", "I-PER"], ["O", "B-PER", "I-PER"]),
        (["O", "B-PER", "I-PER", "E-PER", "S-PER"], ["O", "B-PER", "I-PER", "E-PER", "S-PER"]),
        (["B-LOC", "L-LOC", "O", "U-LOC", "I-LOC"], ["B-LOC", "L-LOC", "O", "U-LOC", "I-LOC"]),
        (["O", "B-PER", "M-PER", "E-PER", "S-PER"], ["O", "B-PER", "M-PER", "E-PER", "S-PER"]),
        (["O", "B-PER", "I-PER", "E-PER", "S-LOC"], ["O", "B-PER", "I-PER", "E-PER", "S-LOC"]),
        (["o", "b-per", "i-per"], ["O", "B-per", "I-per"]),
        (["o", "B-PER", "i-PER"], ["O", "B-PER", "I-PER"]),
        (["O", "B_PER", "I_PER"], ["O", "B-PER", "I-PER"]),
        (["O", "B:PER", "I:PER"], ["O", "B-PER", "I-PER"]),
        (["O", "B.PER", "I.PER"], ["O", "B-PER", "I-PER"]),
        (["O", "PER-B", "PER-I", "LOC-B"], ["O", "B-PER", "I-PER", "B-LOC"]),
        (["O", "PER_B", "PER_I", "PER_E", "PER_S"], ["O", "B-PER", "I-PER", "E-PER", "S-PER"]),
        (["O", "PER", "LOC"], ["O", "I-PER", "I-LOC"]),
        (["O", "I-PER", "I-LOC"], ["O", "I-PER", "I-LOC"]),
        (["O", "I-PER", "B-PER", "I-LOC"], ["O", "I-PER", "B-PER", "I-LOC"]),
        (["O", "B-E-MAIL", "I-E-MAIL"], ["O", "B-E-MAIL", "I-E-MAIL"]),
        (["O", "PER", "S-CORP"], ["O", "I-PER", "I-S-CORP"]),
        # Taggers that were trained with a label for padding give it now and then; the others are read as without it.
        (
            [*BIOES, "[PAD]", "<pad>", "PAD", "[CLS]", "[SEP]", "<s>", "</s>", "[UNK]", "X"],
            ["O", "B-a", "I-a", "E-a", "S-a", *9 * ["O"]],
        ),
        (["[PAD]", "O", "PER", "X"], ["O", "O", "I-PER", "I-X"]),  # `X` may be a kind beside kinds
    ],
)
def test_every_way_to_write_a_position_and_a_kind_is_read(names: list[str], expected: list[str]) -> None:
    """Otherwise `PER-S` and `E_PER` would be kinds of entities; a name that only looks like one is a kind."""
    assert expected == list(label_names(dict(enumerate(names))))


UNFIT = "do not fit the others: "
WITHOUT_KINDS = r"labels .* say where an entity is, .*Write B-KIND and I-KIND"
UNCLEAR = "it is not clear whether"
ALL_ENTITIES = r"no label of id2label is called O .*every word"


@pytest.mark.parametrize(
    ("names", "said"),
    [
        # Whether it is a kind, or outside, or where it ends, nobody can tell, and a wrong reading would not be seen.
        ([*BIOES, "MISC"], f"{UNFIT}MISC[.]"),
        ([*BIOES, "E-MAIL"], f"{UNFIT}E-MAIL[.]"),
        (["O", "B-PER", "I-PER", "E-MAIL", "S-CORP"], f"{UNFIT}E-MAIL, S-CORP[.]"),
        (["O", "I-PER", "E-PER"], f"{UNFIT}I-PER, E-PER[.]"),
        (["O", "PER-B", "PER-I", "EVENT"], f"{UNFIT}EVENT[.]"),
        (["O", "B-PER", "I-PER", "LOC-B", "LOC-I"], f"{UNFIT}LOC-B, LOC-I[.]"),
        # Otherwise there would be entities called B and others called I.
        (["O", "B", "I"], WITHOUT_KINDS),
        (["o", "i"], WITHOUT_KINDS),
        (["[PAD]", "B", "I", "O", "X", "[CLS]", "[SEP]"], WITHOUT_KINDS),
        # There would be entities that are called nothing, or by a position.
        (["O", "B-", "I-"], "name no kind"),
        (["O", "B-PER", "I-PER", "-B"], "name no kind"),
        (["O", "PER", ""], "name no kind"),
        (["O", "LOC", "E_ "], "name no kind"),
        # Nothing beside them tells whether the letter is a position.
        (["O", "S-CORP"], UNCLEAR),
        (["O", "PER-I", "LOC-I"], UNCLEAR),
        (["O", "HEPATITIS-B"], UNCLEAR),
        # It would find nothing, in every article.
        (["O", "[PAD]"], r"no label of id2label \(O, \[PAD\]\) is for an entity"),
        # Every word of every article would be an entity.
        (["0", "B-PER", "I-PER"], ALL_ENTITIES),
        (["PER", "LOC"], ALL_ENTITIES),
        (["OTHER", "B-LOC", "I-LOC"], ALL_ENTITIES),
    ],
)
def test_names_that_cannot_be_understood_are_refused(names: list[str], said: str) -> None:
    """With the labels, and what to write instead."""
    with pytest.raises(ModelError, match=said):
        label_names(dict(enumerate(names)))


@pytest.mark.parametrize(
    ("read", "names"),
    [
        (lambda names: class_names(names, multi_label=False), [f"class {number}" for number in range(200_000)]),
        (label_names, ["O", *(f"{'BI'[number % 2]}-K{number // 2}" for number in range(50_000))]),
        (label_names, ["O", *(f"{'BIES'[number % 4]}-K{number // 4}" for number in range(50_000))]),
    ],
)
def test_many_names_are_read_in_a_moment(read: Callable[[dict[int, str]], Sequence[str]], names: list[str]) -> None:
    """At every start; the time grows with their number, and not with its square."""
    assert len(names) == len(read(dict(enumerate(names))))


@pytest.mark.parametrize("names", [["a", "b", "a"], ["a", "", "b"], ["a", " a"]])
def test_classes_without_names_of_their_own_are_refused(names: list[str]) -> None:
    """Two classes of one name could not be told apart in a record."""
    with pytest.raises(ModelError, match="are repeated or empty"):
        class_names(dict(enumerate(names)), multi_label=False)
