"""Label ids -> entity spans in characters.

The rule (that of the reference, tests/data/reference): the first token of a word decides the word's label; a `B-` opens
an entity; an `I-` continues an entity of its own type on the word just before, else it opens one. Tokens without a label are
passed over as whole arrays: words and characters are looked up only where something was found.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter

import numpy as np
import numpy.typing as npt

from enricher.records import Entity, Float32Array, InFlight, Int32Array, OwnedLabels, TokenizedField

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
    marked = _marked(ticket.answers, scheme)
    entities: list[Entity] = []
    first = begin = 0
    for part in ticket.tokens.fields:
        end = bisect_left(marked, (first + len(part.ids),))
        if begin < end:
            runs = _runs(part, first, marked[begin:end], scheme)
            entities += _entities(ticket.article.text(part.name), part, runs)
        first, begin = first + len(part.ids), end
    return entities


def _marked(answers: list[OwnedLabels], scheme: LabelScheme) -> list[Marked]:
    """The tokens that have a label, in the order of the article."""
    if not answers:
        return []
    labels, scores = _joined(answers)
    (places,) = scheme.inside.take(labels).nonzero()
    return list(zip(places.tolist(), labels[places].tolist(), scores[places].tolist(), strict=True))


def _joined(answers: list[OwnedLabels]) -> tuple[Int32Array, Float32Array]:
    """`[tokens]` each: every token has one owner, so the parts in their order are the article."""
    if len(answers) == 1:
        return answers[0].labels, answers[0].scores
    answers.sort(key=_by_start)
    _, labels, scores = zip(*answers, strict=True)
    return np.concatenate(labels), np.concatenate(scores)


_by_start = itemgetter(0)


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
    stop = 0
    for place, label, score in marked:
        token = place - first
        # `stop` is where the last labelled word ends: a token before it is one of its later pieces, one just there opens
        # the next word, and one beyond may be the later piece of a word without a label.
        if token < stop:
            continue
        word = word_of(token)
        if token > stop and word_of(token - 1) == word:
            continue
        stop = token + 1
        while stop < length and word_of(stop) == word:
            stop += 1
        kind, opens = scheme.meanings[label]
        if runs and not opens and runs[-1].stop == token and runs[-1].kind == kind:
            runs[-1].stop = stop
            runs[-1].scores.append(score)
        else:
            runs.append(_Run(token, stop, kind, [score]))
    return runs


def _entities(text: str, part: TokenizedField, runs: Iterable[_Run]) -> list[Entity]:
    """Without white space at the ends: SentencePiece counts the space before a word as the word's own."""
    entities, name, chars_of = [], part.name, part.spans.chars_of
    for run in runs:
        start, end = chars_of(run.start)[0], chars_of(run.stop - 1)[1]
        span = text[start:end]
        if found := span.strip():
            start += span.index(found) if len(found) < len(span) else 0
            score = sum(run.scores) / len(run.scores)
            entities.append(Entity(name, start, start + len(found), found, run.kind, score))
    return entities
