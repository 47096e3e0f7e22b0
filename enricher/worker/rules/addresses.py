"""URLs and e-mail addresses, inside of which there are no entities.

- A URL: `scheme://...`, `mailto:...`, `www....`, or a host in lower case with a path (`nytimes.com/world`).
- An e-mail address: `name@host.org`, also behind an `@` as in Mastodon.

They end at white space, a quote, an angle bracket, or a character of a script without spaces. A handle (`@BorisJohnson`) is
none, because its name is one word; nor is a host alone, because `Amazon.com` is a company. Time is linear in the text.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from operator import itemgetter
from typing import TYPE_CHECKING

from enricher.worker.rules.words import chunk_around

if TYPE_CHECKING:
    from collections.abc import Iterator

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
_SIGNS = ("@", "/", "www.", "mailto:")
"""Each address has one of these, and most news has none."""


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
        """Whether there are any."""
        return bool(self._ranges)

    def contain(self, start: int, end: int) -> bool:
        """Whether the characters `[start, end)` are all of one address, or a part of one."""
        place = bisect_right(self._ranges, start, key=_by_start) - 1
        return place >= 0 and end <= self._ranges[place][1]


_by_start = itemgetter(0)


def _chunks_with(sign: str, text: str, until: int) -> Iterator[tuple[int, int]]:
    """The ranges between white space that have a sign before `until`, each once."""
    at = text.find(sign, 0, until)
    while at >= 0:
        chunk = chunk_around(text, at)
        yield chunk
        at = text.find(sign, chunk[1], until)
