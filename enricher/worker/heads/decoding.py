"""Label ids -> entity spans in characters.

Words are those of the text (rules/words.py), which also says which token decides a word's label; labels.py says which labels
open and close an entity. A word continues the entity of its own type on the word just before, unless one of the two labels
or a border (rules/borders.py) forbids it. No entity begins or ends with punctuation that is a word by itself; each has a
letter or digit. Tokens without a label are skipped as whole arrays: words and characters are looked up only for labelled
tokens. This is done once per article, because doing it once per run, of 4 windows of news, costs more than joining the parts
(measured).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from operator import itemgetter

import numpy as np

from enricher.worker.heads.labels import LabelScheme
from enricher.worker.records import (
    Article,
    Entity,
    Float32Array,
    Int32Array,
    OwnedLabels,
    TokenizedArticle,
    TokenSpans,
)
from enricher.worker.rules.borders import Addresses, joins
from enricher.worker.rules.words import decided_words

SCORE_STEPS = 10_000
"""Scores are rounded to four decimals; beyond that, precisions and devices differ."""
Marked = tuple[list[int], list[int], list[float]]
"""The labelled tokens of a field: their indices in it, the ids of their labels, the scores."""
Run = tuple[int, int, str, float]
"""The words of one entity: their range of characters `[start, end)`, the entity's type, the score."""


def decode_entities(
    article: Article,
    tokens: TokenizedArticle,
    answers: list[OwnedLabels],
    scheme: LabelScheme,
    *,
    skip_addresses: bool = True,
) -> list[Entity]:
    """The entities of an article, from the labels of all its windows, ordered by field and position.

    `skip_addresses`: leave out those inside of URLs and e-mail addresses.
    """
    entities: list[Entity] = []
    places, labels, scores = _mark(answers, scheme)
    first = begin = 0
    for field in tokens.fields:
        stop = first + len(field.ids)
        end = bisect_left(places, stop, begin)
        if begin < end:
            marked = [place - first for place in places[begin:end]], labels[begin:end], scores[begin:end]
            text = article.text(field.name)
            runs = [*_runs(text, field.spans, marked, scheme)]
            if skip_addresses and runs and (addresses := Addresses(text, runs[-1][1])):
                runs = [run for run in runs if not addresses.contain(run[0], run[1])]
            # Rounding to decimals goes through a string and takes five times as long as rounding to an integer. Float16 can
            # give probabilities a little above 1; they become 1 here.
            entities += [
                {
                    "field": field.name,
                    "start": start,
                    "end": end,
                    "text": text[start:end],
                    "label": kind,
                    "score": round(score * SCORE_STEPS) / SCORE_STEPS,
                }
                for start, end, kind, score in runs
            ]
        first, begin = stop, end
    return entities


def _mark(answers: list[OwnedLabels], scheme: LabelScheme) -> Marked:
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


def _runs(text: str, spans: TokenSpans, marked: Marked, scheme: LabelScheme) -> Iterator[Run]:
    """The words of each entity. A run's score is the mean of its words' scores, without the punctuation at its ends."""
    tokens, labels, scores = marked
    start = end = last = count = skipped = 0
    kind, total, pending, closed = "", 0.0, 0.0, False
    for place, word_start, word_end in decided_words(text, spans.chars_of, tokens):
        its_kind, opens, closes = scheme.meanings[labels[place]]
        if opens or closed or its_kind != kind or ((gap := text[last:word_start]) != " " and not joins(gap)):
            if count:
                yield start, end, kind, total / count
            kind, total, count, pending, skipped = its_kind, 0.0, 0, 0.0, 0
        last, closed = word_end, closes
        if text[word_start].isalnum() or (count and text[word_end - 1].isalnum()):
            if not count:
                start = word_start
            end, total, count = word_end, total + pending + scores[place], count + skipped + 1
            if skipped:
                pending, skipped = 0.0, 0
        elif count:
            pending, skipped = pending + scores[place], skipped + 1
    if count:
        yield start, end, kind, total / count
