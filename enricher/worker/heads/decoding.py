"""Label ids -> entity spans in characters.

The rule is that of the reference (tests/data/reference): the first token of a word decides the word's label; label_scheme.py
says which labels open and close an entity. A word continues the entity of its own type on the word just before, unless one
of the two labels forbids it. Tokens without a label are skipped as whole arrays: words and characters are looked up only for
labelled tokens. This is done once per article, because doing it once per run, of 4 windows of news, costs more than joining
the parts (measured).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from operator import itemgetter

import numpy as np

from enricher.worker.heads.label_scheme import LabelScheme
from enricher.worker.records import (
    Article,
    Entity,
    Float32Array,
    Int32Array,
    OwnedLabels,
    TokenizedArticle,
    TokenizedField,
)

SCORE_STEPS = 10_000
"""Scores are rounded to four decimals; beyond that, precisions and devices differ."""
Marked = tuple[int, int, float]
"""A labelled token: its index in the article, the label's id, the score."""
Run = tuple[int, int, str, float]
"""The words of one entity: their tokens `[start, stop)` in the field, the entity's type, the score."""


def decode_entities(
    article: Article, tokens: TokenizedArticle, answers: list[OwnedLabels], scheme: LabelScheme
) -> list[Entity]:
    """The entities of an article, from the labels of all its windows, ordered by field and position."""
    entities: list[Entity] = []
    places, labels, scores = _mark(answers, scheme)
    first = begin = 0
    for field in tokens.fields:
        stop = first + len(field.ids)
        end = bisect_left(places, stop, begin)
        if begin < end:
            marked = zip(places[begin:end], labels[begin:end], scores[begin:end], strict=True)
            entities += _cut_entities(article.text(field.name), field, _runs(field, first, marked, scheme))
        first, begin = stop, end
    return entities


def _mark(answers: list[OwnedLabels], scheme: LabelScheme) -> tuple[list[int], list[int], list[float]]:
    """The labelled tokens in the order of the article: their indices in it, labels and scores."""
    if not answers:
        return [], [], []
    labels, scores = _join(answers)
    (places,) = scheme.inside.take(labels).nonzero()
    return places.tolist(), labels[places].tolist(), scores[places].tolist()


def _join(answers: list[OwnedLabels]) -> tuple[Int32Array, Float32Array]:
    """Labels and scores, `[tokens]` each. Every token has one owner, so the ordered parts make up the article."""
    if len(answers) == 1:
        return answers[0].labels, answers[0].scores
    answers.sort(key=_by_start)
    _, labels, scores = zip(*answers, strict=True)
    return np.concatenate(labels), np.concatenate(scores)


_by_start = itemgetter(0)


def _runs(part: TokenizedField, first: int, marked: Iterable[Marked], scheme: LabelScheme) -> Iterator[Run]:
    """Apply the rule. `first`: the index of the field's first token in the article. A run's score is its words' mean."""
    word_of, length = part.spans.word_of, len(part.ids)
    start = stop = words = 0
    kind, total, closed, following = "", 0.0, False, word_of(0)
    for place, label, score in marked:
        token = place - first
        # `stop` is the end of the last labelled word, `following` the word there. A token before `stop` is a later piece of
        # that word, a token at `stop` begins the next word, and one beyond may be a later piece of an unlabelled word.
        if token < stop:
            continue
        if token > stop:
            following = word_of(token)
            if word_of(token - 1) == following:
                continue
        its_kind, opens, closes = scheme.meanings[label]
        if opens or closed or token > stop or its_kind != kind:
            if words:
                yield start, stop, kind, total / words
            start, kind, total, words = token, its_kind, 0.0, 0
        closed = closes
        total, words = total + score, words + 1
        word, stop = following, token + 1
        while stop < length and (following := word_of(stop)) == word:
            stop += 1
    if words:
        yield start, stop, kind, total / words


def _cut_entities(text: str, part: TokenizedField, runs: Iterable[Run]) -> Iterator[Entity]:
    """Entities without white space at the ends: SentencePiece counts the space before a word as part of it."""
    name, chars_of = part.name, part.spans.chars_of
    for first, stop, kind, score in runs:
        start, end = chars_of(first)
        if stop - first > 1:
            _, end = chars_of(stop - 1)
        span = text[start:end]
        found = span.strip()
        if not found:
            continue
        if len(found) < len(span):
            start += span.index(found)
            end = start + len(found)
        # Rounding to decimals goes through a string and takes five times as long as rounding to an integer. Float16 can
        # give probabilities a little above 1; they become 1 here.
        rounded = round(score * SCORE_STEPS) / SCORE_STEPS
        yield {"field": name, "start": start, "end": end, "text": found, "label": kind, "score": rounded}
