"""Label names: every way to write position and kind is read, and what would be read wrongly is refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from enricher.errors import ModelError
from enricher.worker.heads.labels import class_names, label_names


def _read(*names: str) -> Sequence[str]:
    return label_names(dict(enumerate(names)))


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
    ],
)
def test_every_way_to_write_a_position_and_a_kind_is_read(names: list[str], expected: list[str]) -> None:
    """Otherwise `PER-S` and `E_PER` would be kinds of entities; a name that only looks like one is a kind."""
    assert expected == list(_read(*names))


@pytest.mark.parametrize("name", ["[PAD]", "<pad>", "PAD", "[CLS]", "[SEP]", "<s>", "</s>", "[UNK]", "X"])
def test_labels_of_special_tokens_are_outside(name: str) -> None:
    """Taggers that were trained with a label for padding give it now and then; and the others are read as without it."""
    assert ["O", "B-a", "I-a", "E-a", "S-a", "O"] == list(_read(*BIOES, name))


def test_names_without_positions_are_kinds_beside_a_label_of_padding() -> None:
    """`[PAD]` is none of the kinds; `X` may be one."""
    assert ["O", "O", "I-PER", "I-X"] == list(_read("[PAD]", "O", "PER", "X"))


@pytest.mark.parametrize(
    ("names", "named"),
    [
        ([*BIOES, "MISC"], "MISC"),
        ([*BIOES, "E-MAIL"], "E-MAIL"),
        (["O", "B-PER", "I-PER", "E-MAIL", "S-CORP"], "E-MAIL, S-CORP"),
        (["O", "I-PER", "E-PER"], "I-PER, E-PER"),
        (["O", "PER-B", "PER-I", "EVENT"], "EVENT"),
        (["O", "B-PER", "I-PER", "LOC-B", "LOC-I"], "LOC-B, LOC-I"),
    ],
)
def test_a_label_that_does_not_go_with_the_others_is_refused_by_name(names: list[str], named: str) -> None:
    """Whether it is a kind, or outside, or where it ends, nobody can tell, and a wrong reading would not be seen."""
    with pytest.raises(ModelError, match=f"do not fit the others: {named}[.]"):
        _read(*names)


@pytest.mark.parametrize("names", [["O", "B", "I"], ["o", "i"], ["[PAD]", "B", "I", "O", "X", "[CLS]", "[SEP]"]])
def test_positions_without_kinds_are_refused(names: list[str]) -> None:
    """Otherwise there would be entities called B and others called I; what they are called is not ours to invent."""
    with pytest.raises(ModelError, match=r"labels .* say where an entity is, .*Write B-KIND and I-KIND"):
        _read(*names)


@pytest.mark.parametrize(
    "names", [["O", "B-", "I-"], ["O", "B-PER", "I-PER", "-B"], ["O", "PER", ""], ["O", "LOC", "E_ "]]
)
def test_names_without_a_kind_are_refused(names: list[str]) -> None:
    """There would be entities that are called nothing, or by a position."""
    with pytest.raises(ModelError, match=r"name no kind"):
        _read(*names)


@pytest.mark.parametrize("names", [["O", "S-CORP"], ["O", "PER-I", "LOC-I"], ["O", "HEPATITIS-B"]])
def test_names_that_may_be_either_are_refused(names: list[str]) -> None:
    """Nothing beside them tells whether the letter is a position."""
    with pytest.raises(ModelError, match="it is not clear whether"):
        _read(*names)


def test_a_model_that_knows_no_entity_is_refused() -> None:
    """It would find nothing, in every article."""
    with pytest.raises(ModelError, match=r"no label of id2label \(O, \[PAD\]\) is for an entity"):
        _read("O", "[PAD]")


@pytest.mark.parametrize("names", [["0", "B-PER", "I-PER"], ["PER", "LOC"], ["OTHER", "B-LOC", "I-LOC"]])
def test_names_without_an_o_are_refused(names: list[str]) -> None:
    """Every word of every article would be an entity."""
    with pytest.raises(ModelError, match=r"no label of id2label is called O .*every word"):
        _read(*names)


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
