"""URLs and e-mail addresses, inside of which there are no entities.

- A URL: `scheme://...`, `mailto:...`, `www....`, or a host in lower case with a path (`nytimes.com/world`).
- An e-mail address: `name@host.org`, also behind an `@` as in Mastodon.

They end at white space, a quote, an angle bracket, or a character of a script without spaces. A handle (`@BorisJohnson`) is
none, because its name is one word; nor is a host alone, because `Amazon.com` is a company. Time is linear in the text.
"""

from __future__ import annotations

import re
from bisect import bisect_right

from enricher.worker.rules.words import chunk_around

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
_AROUND = frozenset(["", *' \n\t,;!?()"\u201c\u201d'])
"""Characters around most names, and beside no part of an address that is a word without a dot."""


class Addresses:
    """The addresses in one text. Positions that increase cost least: a chunk between white space is then read once."""

    __slots__ = ("_chunk", "_ends", "_starts", "_text")

    def __init__(self, text: str) -> None:
        self._text = text
        self._chunk = 0, 0
        self._starts: list[int] = []
        self._ends: list[int] = []

    def contain(self, start: int, end: int) -> bool:
        """Whether the characters `[start, end)` are all of one address, or a part of one."""
        text = self._text
        name = text[start:end]
        if (
            text[end : end + 1] in _AROUND
            and text[start - 1 : start] in _AROUND
            and "." not in name
            and "@" not in name
        ):
            return False
        if not self._chunk[0] <= start < self._chunk[1]:
            self._chunk = first, last = chunk_around(text, start)
            found = [each.span() for each in _ADDRESS.finditer(text[first:last])]
            self._starts, self._ends = [first + start for start, _ in found], [first + end for _, end in found]
        place = bisect_right(self._starts, start) - 1
        return place >= 0 and end <= self._ends[place]


def may_have_address(text: str) -> bool:
    """Whether a text has the signs of one. Most news has none."""
    return "@" in text or "/" in text or "www." in text or "mailto:" in text
