"""Label ids -> entity spans in characters.

The rule (that of the reference, tests/data/reference): the first token of a word decides the word's label; a `B-` opens
an entity; an `I-` continues an entity of its own type on the word just before, else it opens one. Tokens without a label are
passed over as whole arrays: words and characters are looked up only where something was found.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from enricher.records import Article, Entity, InFlight, TokenizedField

BoolArray = npt.NDArray[np.bool_]
Marked = tuple[int, int, float]
"""A token that has a label: its place in the article, the label's id, and the score."""


@dataclass(frozen=True, slots=True)
class LabelScheme:
    """What label ids mean: `inside bool [labels]`, and for each label its kind and whether it opens an entity."""

    inside: BoolArray
    meanings: tuple[tuple[str, bool], ...]

    @classmethod
    def from_labels(cls, labels: Sequence[str]) -> LabelScheme:
        """Read IOB2 names (`O`, `B-PER`, `I-PER`, ...); a name without a prefix (`PER`) is an `I-`."""
        meanings = tuple(map(_parse_label, labels))
        return cls(np.array([bool(kind) for kind, _ in meanings]), meanings)


def _parse_label(label: str) -> tuple[str, bool]:
    """`B-PER` -> ("PER", True); `O` -> ("", False)."""
    if label == "O":
        return "", False
    prefix, dash, kind = label.partition("-")
    return (kind, prefix == "B") if dash and prefix in {"B", "I"} else (label, False)


def decode_entities(ticket: InFlight, scheme: LabelScheme) -> list[Entity]:
    """The entities of a ticket whose windows are all labelled, by field and position."""
    assert ticket.article is not None
    assert ticket.tokens is not None
    assert ticket.labels is not None
    assert ticket.scores is not None
    (places,) = scheme.inside[ticket.labels].nonzero()
    if not places.size:
        return []
    marked = list(zip(places.tolist(), ticket.labels[places].tolist(), ticket.scores[places].tolist(), strict=True))
    entities: list[Entity] = []
    first = begin = 0
    for part in ticket.tokens.fields:
        end = bisect_left(marked, (first + len(part.ids),))
        entities += _entities(ticket.article, part, _runs(part, first, marked[begin:end], scheme))
        first, begin = first + len(part.ids), end
    return entities


@dataclass(slots=True)
class _Run:
    """Tokens `[start, stop)` that are one entity, and the scores of its words."""

    start: int
    stop: int
    kind: str
    scores: list[float]


def _runs(part: TokenizedField, first: int, marked: Iterable[Marked], scheme: LabelScheme) -> list[_Run]:
    """The rule. `first`: the place of the field's first token in its article."""
    runs: list[_Run] = []
    word_of, length = part.spans.word_of, len(part.ids)
    for place, label, score in marked:
        token = place - first
        word, stop = word_of(token), token + 1
        if token and word_of(token - 1) == word:
            continue
        while stop < length and word_of(stop) == word:
            stop += 1
        kind, opens = scheme.meanings[label]
        if runs and not opens and (runs[-1].stop, runs[-1].kind) == (token, kind):
            runs[-1].stop = stop
            runs[-1].scores.append(score)
        else:
            runs.append(_Run(token, stop, kind, [score]))
    return runs


def _entities(article: Article, part: TokenizedField, runs: Iterable[_Run]) -> Iterator[Entity]:
    """Without white space at the ends: SentencePiece counts the space before a word as the word's own."""
    text, chars_of = article.text(part.name), part.spans.chars_of
    for run in runs:
        start, end = chars_of(run.start)[0], chars_of(run.stop - 1)[1]
        span = text[start:end]
        if found := span.strip():
            start += len(span) - len(span.lstrip())
            yield Entity(part.name, start, start + len(found), found, run.kind, sum(run.scores) / len(run.scores))
