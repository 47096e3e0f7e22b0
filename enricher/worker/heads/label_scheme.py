"""The reading of labels, for every scheme: which words in a row make one entity. label_names.py reads how names are written.

A label has a kind and a position in its entity (`B-PER`); a plain kind (`PER`) is read as `I-`. Word by word:

- A label continues the entity of the word just before if both are of one kind, it does not open an entity, and the label
  before did not close one. Else it begins an entity, whatever its position: no labelled word is lost.
- An entity ends with the last word that continues it, whether or not that word closes it.

So each labelled word is in exactly one entity, also where a model contradicts its scheme (an `I` or `E` without a `B`, a `B`
that nothing closes); and labels that keep to their scheme give the entities that they were made from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

BoolArray = npt.NDArray[np.bool_]
OUTSIDE = "O"


class Position(NamedTuple):
    """The meaning of a position: whether an entity begins, and whether one ends, at a word with it."""

    opens: bool
    closes: bool


POSITIONS: Mapping[str, Position] = {
    "B": Position(opens=True, closes=False),
    "I": Position(opens=False, closes=False),
    "M": Position(opens=False, closes=False),
    "E": Position(opens=False, closes=True),
    "L": Position(opens=False, closes=True),
    "S": Position(opens=True, closes=True),
    "U": Position(opens=True, closes=True),
}
"""Begin, inside, middle, end, last, single, unit. IO and plain kinds have only `I`, so neighbours of a kind are one entity;
in IOB1 a `B` separates such neighbours, and in IOB2 each entity begins with one: all three are read by the same rows."""
SCHEMES = ({"B", "I", "E", "S"}, {"B", "I", "L", "U"}, {"B", "M", "E", "S"})
"""The positions of BIOES, BILOU and BMES: one that only such a scheme has stands for the others of the scheme."""
_INSIDE = POSITIONS["I"]


@dataclass(frozen=True, slots=True)
class LabelScheme:
    """The meaning of label ids: `inside bool [labels]`; per label its entity's kind, and whether it opens and closes one."""

    inside: BoolArray
    meanings: tuple[tuple[str, bool, bool], ...]
    """Plain tuples, because they are unpacked for each labelled word, which takes longer for a class of ours."""

    @classmethod
    def from_labels(cls, labels: Sequence[str]) -> LabelScheme:
        """Read the names that `label_names` gives: `O`, `B-PER`, `I-PER`, `S-PER`, ...; a bare kind is an `I-`."""
        meanings = tuple(map(_meaning, labels))
        return cls(np.array([bool(kind) for kind, _, _ in meanings]), meanings)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of entities, each once, in the order of the labels."""
        return tuple(dict.fromkeys(kind for kind, _, _ in self.meanings if kind))


def _meaning(label: str) -> tuple[str, bool, bool]:
    """`B-PER` -> ("PER", True, False); `O` -> ("", False, False)."""
    if label == OUTSIDE:
        return "", *_INSIDE
    letter, dash, kind = label.partition("-")
    position = POSITIONS.get(letter) if dash else None
    return (kind, *position) if position else (label, *_INSIDE)
