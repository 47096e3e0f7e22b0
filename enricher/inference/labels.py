"""The label names of config.json -> the names that decoding reads: `O`, and `B-` or `I-` before a kind.

Models of the hub write the same in other ways. What cannot be read is refused: a wrong reading would not be seen.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from enricher.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

OUTSIDE = "O"
_PREFIXED = re.compile(r"([BIESLU])[-_](.+)", re.IGNORECASE)
_IN_IOB2 = {"B": "B", "I": "I", "E": "I", "S": "B", "L": "I", "U": "B"}
"""BIOES and BILOU also mark the last word (E, L) and a single one (S, U). What follows opens by its own letter anyway."""


def label_names(id2label: Mapping[int, str]) -> tuple[str, ...]:
    """Label names by id. Raises ModelError where config.json does not name them, or none of them is `O`."""
    names = tuple(id2label[index] for index in sorted(id2label))
    if sorted(id2label) != list(range(len(names))) or len(names) < 2:
        raise ModelError(
            "config.json: id2label must name every label, with ids 0, 1, 2, ...: add the names used in training."
        )
    if all(name == f"LABEL_{index}" for index, name in enumerate(names)):
        raise ModelError(
            "config.json: id2label holds only placeholders (LABEL_0, ...): write the names used in training there."
        )
    read = _in_iob2([OUTSIDE if name == OUTSIDE.lower() else name for name in names])
    if OUTSIDE not in read:
        raise ModelError(
            f"config.json: no label of id2label is called {OUTSIDE} ({', '.join(names[:5])}, ...), so every word would be "
            f"an entity: call the one for words outside of entities so. Without one the model finds no named entities."
        )
    return read


def _in_iob2(names: Sequence[str]) -> tuple[str, ...]:
    """The names as they are, unless all but `O` begin with a letter of BIOES or BILOU, and every kind can open."""
    found = [_PREFIXED.fullmatch(name) for name in names if name != OUTSIDE]
    parts = [(each[1].upper(), each[2]) for each in found if each]
    opening = {kind for letter, kind in parts if _IN_IOB2[letter] == "B"}
    if len(parts) < len(found) or any(kind not in opening for _, kind in parts):
        return tuple(names)
    read = iter(f"{_IN_IOB2[letter]}-{kind}" for letter, kind in parts)
    return tuple(name if name == OUTSIDE else next(read) for name in names)
