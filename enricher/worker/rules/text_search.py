"""Finds names of a catalogue in the text of an article, where the model found no entity.

A name is found as it is in the catalogue, with its case, but for Unicode form, white space, apostrophes, dashes and
invisible characters (`Spelling`). It begins and ends where words do (`words.py`). In scripts without spaces each letter is a
word, so there a name may be a part of a longer word, and only the least number of letters prevents that; but no name begins
or ends inside a run of katakana. No name crosses a border or is in an address (`borders.py`).

Of several names that begin at one place the longest counts, and the next one begins behind it. If the longest name touches
an entity of the model, neither it nor a shorter one is found there: the model read something else.

This module does not know the names, nor what they mean (`catalogue.py`). An entity that is found has `source`, and the score
1, because its name is certain. Work is linear in the text, times the names that begin at one place, at most 200.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence

from enricher.worker.records import Article, Entity, FieldName
from enricher.worker.rules.borders import Addresses
from enricher.worker.rules.folding import Spelling
from enricher.worker.rules.words import WordBorders

LengthsAt = Callable[[str, int], Sequence[int]]
"""The lengths of all names that are in a text at a position, in increasing order."""
LabelOf = Callable[[str], str | None]
"""The label of a name, spelled as in `Spelling`; None if it is the name of no entry for this article."""
MAX_CHARS = 200
"""The most characters of a name that is found, in the text with its invisible ones, and as it is spelled."""

_HIGH = "[\u0e00-\uffff\U0001aff0-\U0003ffff]"
_STARTS = re.compile(rf"(?<![^\W_])\S|(?<={_HIGH})\S|[^\w\s]|{_HIGH}")
"""Places where a word may begin: not behind a letter or digit, at punctuation, beside letters of scripts without spaces."""
_KATAKANA = re.compile("[\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff\uff66-\uff9f]{2}")


def names_in(text: str, lengths_at: LengthsAt, label_of: LabelOf) -> Iterator[tuple[int, int, str]]:
    """The ranges `[start, end)` of names in the text, in order, each with its label."""
    spelling, borders = Spelling(text), WordBorders(text)
    spelled, past = spelling.text, 0
    for found in _STARTS.finditer(spelled):
        start = found.start()
        for length in reversed(lengths_at(spelled, start) if start >= past else ()):
            # The label first: it costs least, and a catalogue may have 200 names for another language at each place.
            if (label := label_of(spelled[start : start + length])) is None:
                continue
            place = spelling.source_range(start, start + length)
            if place is None or place[1] - place[0] > MAX_CHARS or not borders.are_at(*place):
                continue
            if (place[0] and _KATAKANA.match(text, place[0] - 1)) or _KATAKANA.match(text, place[1] - 1):
                continue
            yield *place, label
            past = start + length
            break


def new_entities(
    article: Article, entities: Sequence[Entity], lengths_at: LengthsAt, label_of: LabelOf
) -> Iterator[Entity]:
    """The entities for names that touch none of `entities`, title first, in the order of the text."""
    fields: tuple[FieldName, ...] = ("title", "body")
    for field in fields:
        text, source_map = article.text(field), article.source_map if field == "body" else None
        if not (found := [*names_in(text, lengths_at, label_of)]):
            continue
        addresses = Addresses(text, found[-1][1])
        taken = _Ranges((each["start"], each["end"]) for each in entities if each["field"] == field)
        for start, end, label in found:
            place = seen = start, end
            if source_map is not None:
                place = source_map.source_range(start, end)
                seen = source_map.text_range(*place)
            if not addresses.contain(start, end) and not taken.touch(*place):
                shown = text[slice(*seen)]
                yield Entity(
                    field=field, start=place[0], end=place[1], text=shown, label=label, score=1.0, source="catalogue"
                )


class _Ranges:
    """Ranges that may overlap."""

    def __init__(self, ranges: Iterable[tuple[int, int]]) -> None:
        self._starts, self._ends = list[int](), list[int]()
        for start, end in sorted(ranges):
            self._starts.append(start)
            self._ends.append(max(end, self._ends[-1] if self._ends else 0))

    def touch(self, start: int, end: int) -> bool:
        """Whether one of them has a character of `[start, end)`."""
        before = bisect_left(self._starts, end)
        return before > 0 and self._ends[before - 1] > start
