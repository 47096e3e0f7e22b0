"""Label names: what models write for IOB2 is read as IOB2, and what would be read wrongly is refused."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from enricher.errors import ModelError
from enricher.inference.labels import label_names


def _read(*names: str) -> Sequence[str]:
    return label_names(dict(enumerate(names)))


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["O", "B-PER", "I-PER"], ["O", "B-PER", "I-PER"]),
        (["O", "B-PER", "I-PER", "E-PER", "S-PER"], ["O", "B-PER", "I-PER", "I-PER", "B-PER"]),
        (["B-LOC", "L-LOC", "O", "U-LOC", "I-LOC"], ["B-LOC", "I-LOC", "O", "B-LOC", "I-LOC"]),
        (["o", "b-per", "i-per"], ["O", "B-per", "I-per"]),
        (["O", "B_PER", "I_PER"], ["O", "B-PER", "I-PER"]),
        (["O", "PER", "LOC"], ["O", "PER", "LOC"]),
        (["O", "I-PER", "I-LOC"], ["O", "I-PER", "I-LOC"]),
        (["O", "B-PER", "I-PER", "E-MAIL"], ["O", "B-PER", "I-PER", "E-MAIL"]),
        (["O", "PER", "S-CORP"], ["O", "PER", "S-CORP"]),
    ],
)
def test_every_way_to_write_iob2_is_read_as_iob2(names: list[str], expected: list[str]) -> None:
    """Otherwise `E-PER` and `S-PER` would be kinds of entities; a name that only looks like it stays."""
    assert expected == list(_read(*names))


@pytest.mark.parametrize("names", [["0", "B-PER", "I-PER"], ["PER", "LOC"], ["OTHER", "B-LOC", "I-LOC"]])
def test_names_without_an_o_are_refused(names: list[str]) -> None:
    """Every word of every article would be an entity."""
    with pytest.raises(ModelError, match=r"no label of id2label is called O .*every word"):
        _read(*names)
