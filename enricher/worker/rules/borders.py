"""Borders, which no entity crosses, and addresses, which contain no entity, whatever labels say.

A border is between paragraphs, cells of a table and records. A single line break may be a wrap, so an entity crosses it.
Paragraphs that are items of an array are joined with one.

Addresses:

- A URL: `scheme://...`, `mailto:...`, `www....`, or a host in lower case with a path (`nytimes.com/world`).
- An e-mail address: `name@host.org`, also behind an `@` as in Mastodon.

Addresses end at white space, a quote, an angle bracket, or a character of a script without spaces. A handle
(`@BorisJohnson`) is no address, because its name is one word; nor is a host alone, because `Amazon.com` is a company. Time
is linear in the text.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from operator import itemgetter

from enricher.worker.rules.words import chunk_around, is_in_word

_LINE_BREAK = "(?:\r\n|[\r\n\u2028])"
_BORDER = re.compile(f"[\0-\x09\x0b\x0c\x0e-\x1f\x7f-\x9f\u2029]|(?>{_LINE_BREAK})[^\\S\r\n\u2028]*+{_LINE_BREAK}")
"""A tab or another control character, a paragraph separator, or an empty line, which may have spaces."""
_PLAIN = frozenset(["", " "])
_REST = (
    "[^\\s\"'<>\u201c\u201d\u00ab\u00bb\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3000-\u30ff\u3400-\u9fff\uf900-\ufaff"
    "\uff00-\uffef]*+"
)
_ADDRESS = re.compile(
    rf"""
    (?<![\w.+%-]) (?:
        (?:[A-Za-z][A-Za-z0-9+.-]*+:// | mailto: | www\. | (?:[a-z0-9-]++\.)++[a-z]{{2,}}+/) {_REST}
      | [\w.+%-]++@[\w-]++\.{_REST}
    )
    """,
    re.VERBOSE,
)
_by_start = itemgetter(0)
_SIGNS = ("@", "/", "www.", "mailto:")
"""Each address has one of these, and most news has none."""


def has_border(text: str) -> bool:
    """Whether the text has a tab, an empty line, or a control character that is no line break."""
    return _BORDER.search(text) is not None


def joins(gap: str) -> bool:
    """Whether an entity may continue after `gap`, the characters between a word and the next one.

    Format characters in the gap are ignored: a joiner or a mark of direction separates no names, and an empty line may have
    one.
    """
    if gap in _PLAIN:
        return True
    return not any(map(is_in_word, gap)) and not has_border(
        "".join(char for char in gap if char.isspace() or char < "\xa0")
    )


class Addresses:
    """The addresses in one text that begin before `end`, the end of its last name: a text may be much longer."""

    __slots__ = ("_ranges",)

    def __init__(self, text: str, end: int) -> None:
        _, until = chunk_around(text, end - 1)
        chunks = {chunk for sign in _SIGNS if sign in text for chunk in _chunks_with(sign, text, until)}
        self._ranges = [
            (start + found.start(), start + found.end())
            for start, end in sorted(chunks)
            for found in _ADDRESS.finditer(text[start:end])
        ]

    def __bool__(self) -> bool:
        """Whether the text has any address."""
        return bool(self._ranges)

    def contain(self, start: int, end: int) -> bool:
        """Whether the characters `[start, end)` are an address or a part of one."""
        place = bisect_right(self._ranges, start, key=_by_start) - 1
        return place >= 0 and end <= self._ranges[place][1]


def _chunks_with(sign: str, text: str, until: int) -> Iterator[tuple[int, int]]:
    """The ranges between white space that have a sign before `until`, each once."""
    at = text.find(sign, 0, until)
    while at >= 0:
        chunk = chunk_around(text, at)
        yield chunk
        at = text.find(sign, chunk[1], until)
