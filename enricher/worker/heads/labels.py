"""Labels: reads their names in config.json, for every scheme, and makes entity spans in characters of label ids.

Models on the hub write label names in many ways: `O`, or a position before or behind a kind (`B-PER`). Names that cannot be
understood are refused, because nobody would notice if they were misunderstood.

A label has a kind and a position in its entity (`B-PER`); a plain kind (`PER`) is read as `I-`. Word by word:

- A label continues the entity of the word just before if both are of one kind, the label does not open an entity, and the
  label before did not close its entity. Else it begins an entity, whatever its position: no labelled word is lost.
- An entity ends with the last word that continues it, whether or not that word closes it.

So each labelled word is in exactly one entity, also where a model contradicts its scheme (an `I` or `E` without a `B`, a `B`
that nothing closes); and labels that follow their scheme give the entities from which they were made.

Words are those of the text (rules/words.py), which also says which token decides a word's label. A border (rules/borders.py)
ends an entity too. No entity begins or ends with punctuation that is a word by itself; each has a letter or digit. Tokens
without a label are skipped as whole arrays: words and characters are looked up only for labelled tokens. This is done once
per article, because doing it once per run, of 4 windows of news, costs more than joining the parts (measured).
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from enricher.errors import ModelError
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
"""The positions: begin, inside, middle, end, last, single, unit. IO and plain kinds have only `I`, so neighbours of a
kind are one entity; in IOB1 a `B` separates such neighbours, and in IOB2 each entity begins with one: the same rows read
all three."""
SCHEMES = ({"B", "I", "E", "S"}, {"B", "I", "L", "U"}, {"B", "M", "E", "S"})
"""The positions of BIOES, BILOU and BMES: a position that only one scheme has is proof of the scheme's other positions."""
_INSIDE = POSITIONS["I"]


@dataclass(frozen=True, slots=True)
class LabelScheme:
    """The meaning of label ids: `inside bool [labels]`; per label its entity's kind, and whether it opens and closes one."""

    inside: BoolArray
    meanings: tuple[tuple[str, bool, bool], ...]
    """Plain tuples, because they are unpacked for each labelled word, which takes longer for our own class."""

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


_LETTERS = "".join(POSITIONS)
_PREFIXED = re.compile(rf"(?P<letter>[{_LETTERS}])[\W_]+(?P<kind>.+)", re.IGNORECASE)
_SUFFIXED = re.compile(rf"(?P<kind>.+?)[\W_]+(?P<letter>[{_LETTERS}])", re.IGNORECASE)
_OF_SPECIAL_TOKENS = re.compile(r"[\W_]*(PAD|PADDING|CLS|SEP)[\W_]*|[\[<]/?(S|BOS|EOS|UNK|MASK)[\]>]", re.IGNORECASE)
_WITHOUT_KIND = re.compile(rf"|[{_LETTERS}][\W_]+|[\W_]+[{_LETTERS}]", re.IGNORECASE)
_SURROGATE = re.compile("[\ud800-\udfff]")
_OF_LATER_PIECES = "X"
"""Early BERT taggers give this label to every piece of a word except the first."""
_SHOWN = 5
"""The number of names in a message."""


class _Tag(NamedTuple):
    """A label's name in its two parts."""

    letter: str
    kind: str


def names_by_id(config: Mapping[str, Any]) -> dict[int, str]:
    """The `id2label` of a config.json that was checked, with its ids as numbers."""
    return {int(key): str(name) for key, name in dict(config.get("id2label") or {}).items()}


def label_names(id2label: Mapping[int, str]) -> tuple[str, ...]:
    """Label names by id: `O`, or position and kind. Raises ModelError if config.json lacks them, or they cannot be read."""
    names = _names(id2label, least=2)
    if not any(name.upper() == OUTSIDE for name in names):
        raise ModelError(
            f"config.json: no label of id2label is called {OUTSIDE} ({_few_of(names)}), so every word would be an entity. "
            f"Give this name to the label of words outside of entities. A model without one finds no named entities."
        )
    of_entities = [name for name in names if name.upper() != OUTSIDE and not _OF_SPECIAL_TOKENS.fullmatch(name)]
    if not of_entities:
        raise ModelError(f"config.json: no label of id2label ({_few_of(names)}) is for an entity.")
    if nameless := [name for name in of_entities if _WITHOUT_KIND.fullmatch(name)]:
        raise ModelError(
            f"config.json: these labels of id2label name no kind of entity: {_few_of(list(map(repr, nameless)))}. "
            f"Write the names used in training there, and {OUTSIDE} for words outside of entities."
        )
    read = _with_positions(of_entities)
    return tuple(read.get(name, OUTSIDE) for name in names)


def class_names(id2label: Mapping[int, str], *, multi_label: bool) -> tuple[str, ...]:
    """Names of classes by id, unchanged. Raises ModelError if config.json does not give each class its own name.

    `multi_label`: a single class, which holds or does not, is enough.
    """
    names = _names(id2label, least=1 if multi_label else 2)
    if repeated := sorted(name for name, count in Counter(names).items() if count > 1 or not name):
        raise ModelError(
            f"config.json: names in id2label are repeated or empty: {_few_of(list(map(repr, repeated)))}. Write the names "
            f"used in training there, each once."
        )
    return names


def _names(id2label: Mapping[int, str], *, least: int) -> tuple[str, ...]:
    """The names by id. Raises ModelError if there are fewer than `least`, or only placeholders."""
    names = tuple(id2label[index].strip() for index in sorted(id2label))
    if sorted(id2label) != list(range(len(names))) or len(names) < least:
        raise ModelError(
            "config.json: id2label must name every label, with ids 0, 1, 2, ...: add the names used in training."
        )
    if _SURROGATE.search("".join(names)):
        raise ModelError("config.json: a name of id2label holds half a surrogate pair, which no record can contain.")
    if all(name == f"LABEL_{index}" for index, name in enumerate(names)):
        raise ModelError(
            "config.json: id2label holds only placeholders (LABEL_0, ...): write the names used in training there."
        )
    return names


def _with_positions(names: Sequence[str]) -> Mapping[str, str]:
    """The position and kind of each label inside entities. A name without a position is a kind, and gets `I-`."""
    for pattern, proving in ((_PREFIXED, {"B", "I"}), (_SUFFIXED, set[str]())):
        tags = _tags(names, pattern, proving)
        if not tags:
            continue
        without = [name for name in names if name not in tags and name.upper() != _OF_LATER_PIECES]
        if odd := without + _never_opened(tags):
            raise ModelError(
                f"config.json: in id2label there are positions and kinds, and these labels do not fit the others: "
                f"{_few_of(odd)}. Call a label for words outside of entities {OUTSIDE}; else write B- or I- before its kind."
            )
        return {name: f"{tag.letter}-{tag.kind}" for name, tag in tags.items()}
    _require_kinds(names)
    return {name: f"I-{name}" for name in names}


def _tags(names: Sequence[str], pattern: re.Pattern[str], proving: Collection[str]) -> dict[str, _Tag]:
    """The names that consist of a letter and a kind; empty if that is not proved, because `E-MAIL` only looks like one.

    A kind with several letters proves these letters and their schemes; so does a kind with a letter of `proving`.
    """
    found = {name: _Tag(part["letter"].upper(), part["kind"]) for name in names if (part := pattern.fullmatch(name))}
    letters_of: defaultdict[str, set[str]] = defaultdict(set)
    for letter, kind in found.values():
        letters_of[kind].add(letter)
    proved = {letter for its in letters_of.values() if len(its) > 1 or its & set(proving) for letter in its}
    used = proved.union(*(scheme for scheme in SCHEMES if scheme & proved - {"B", "I"}))
    return {name: tag for name, tag in found.items() if tag.letter in used}


def _never_opened(tags: Mapping[str, _Tag]) -> list[str]:
    """The labels of kinds that have an end and no begin. IOE, which separates neighbours by `E`, is not read."""
    if {tag.letter for tag in tags.values()} <= {"B", "I"}:
        return []
    opened = {tag.kind for tag in tags.values() if POSITIONS[tag.letter].opens}
    return [name for name, tag in tags.items() if tag.kind not in opened]


def _require_kinds(names: Sequence[str]) -> None:
    """Raise ModelError if names that were taken for kinds may be positions."""
    bare = {name.upper() for name in names} & POSITIONS.keys()
    if bare & {"B", "I"} or len(bare) == len(names):
        raise ModelError(
            f"config.json: the labels {_few_of(names)} of id2label say where an entity is, but not of what kind. Write "
            f"B-KIND and I-KIND there, with the name that the entities shall have."
        )
    if all(_PREFIXED.fullmatch(name) or _SUFFIXED.fullmatch(name) for name in names):
        raise ModelError(
            f"config.json: it is not clear whether the labels {_few_of(names)} of id2label are kinds, or kinds with a "
            f"position. Write I- before a kind, and B- where one begins."
        )


def _few_of(names: Sequence[str]) -> str:
    """The first few names, for a message."""
    return ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")


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
