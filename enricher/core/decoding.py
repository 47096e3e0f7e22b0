"""Label ids -> entity spans in characters.

The rule (that of the reference, tests/data/reference): the first token of a word decides the word's label; a `B-` opens
an entity; an `I-` continues an entity of its own type on the word just before, else it opens one. Works on whole arrays;
words and characters are looked up only for articles in which something was found.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from enricher.records import Article, Entity, Float32Array, InFlight, Int32Array, TokenizedField

BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class LabelScheme:
    """What label ids mean: `kinds int32 [labels]` (0 is outside), `opens bool [labels]`, and the name of each kind."""

    kinds: Int32Array
    opens: BoolArray
    names: tuple[str, ...]

    @classmethod
    def from_labels(cls, labels: Sequence[str]) -> LabelScheme:
        """Read IOB2 names (`O`, `B-PER`, `I-PER`, ...); a name without a prefix (`PER`) is an `I-`."""
        parsed = [_parse_label(label) for label in labels]
        names = tuple(dict.fromkeys(kind for _, kind in parsed if kind))
        return cls(
            kinds=np.array([names.index(kind) + 1 if kind else 0 for _, kind in parsed], dtype=np.int32),
            opens=np.array([opens for opens, _ in parsed], dtype=np.bool_),
            names=names,
        )


def _parse_label(label: str) -> tuple[bool, str]:
    """`B-PER` -> (True, "PER"); `O` -> (False, "")."""
    if label == "O":
        return False, ""
    prefix, dash, kind = label.partition("-")
    return (prefix == "B", kind) if dash and prefix in {"B", "I"} else (False, label)


def entity_runs(kinds: Int32Array, opens: BoolArray) -> list[tuple[int, int]]:
    """Half-open runs of words that are one entity each, from `kinds int32 [words]` and `opens bool [words]`."""
    inside = kinds != 0
    same_as_before = np.zeros(len(kinds), dtype=np.bool_)
    same_as_before[1:] = kinds[1:] == kinds[:-1]
    continues = inside & same_as_before & ~opens
    starts = np.flatnonzero(inside & ~continues)
    breaks = np.append(np.flatnonzero(~continues), len(kinds))
    stops = breaks[np.searchsorted(breaks, starts, side="right")]
    return list(zip(starts.tolist(), stops.tolist(), strict=True))


def decode_entities(ticket: InFlight, scheme: LabelScheme) -> list[Entity]:
    """The entities of a ticket whose windows are all labelled, by field and position."""
    assert ticket.article is not None
    assert ticket.tokens is not None
    assert ticket.labels is not None
    assert ticket.scores is not None
    entities: list[Entity] = []
    first = 0
    for part in ticket.tokens.fields:
        stop = first + len(part.ids)
        labels, scores = ticket.labels[first:stop], ticket.scores[first:stop]
        if scheme.kinds[labels].any():
            entities += _decode_field(ticket.article, part, labels, scores, scheme)
        first = stop
    return entities


def _decode_field(
    article: Article, part: TokenizedField, labels: Int32Array, scores: Float32Array, scheme: LabelScheme
) -> Iterator[Entity]:
    word_ids, char_spans = part.spans.word_ids()[: len(labels)], part.spans.char_spans()
    first_tokens = np.flatnonzero(np.diff(word_ids, prepend=-1))
    last_tokens = np.append(first_tokens[1:], len(labels)) - 1
    word_labels, word_scores = labels[first_tokens], scores[first_tokens]
    kinds = scheme.kinds[word_labels]
    text = article.text(part.name)
    for start_word, stop_word in entity_runs(kinds, scheme.opens[word_labels]):
        start, end = _trimmed(text, char_spans[first_tokens[start_word], 0], char_spans[last_tokens[stop_word - 1], 1])
        if start < end:
            yield Entity(
                field=part.name,
                start=start,
                end=end,
                text=text[start:end],
                label=scheme.names[kinds[start_word] - 1],
                score=float(word_scores[start_word:stop_word].mean()),
            )


def _trimmed(text: str, start: np.int32, end: np.int32) -> tuple[int, int]:
    """The span without white space at its ends: SentencePiece counts the space before a word as the word's own."""
    raw = text[start:end]
    return int(start) + len(raw) - len(raw.lstrip()), int(end) - len(raw) + len(raw.rstrip())
