"""Borders between paragraphs, cells of a table and records, which no entity crosses, whatever labels say.

A single line break may be a wrap, so an entity crosses it. `articles.paragraph_separator` must contain a border.
"""

from __future__ import annotations

import re

from enricher.worker.rules.words import is_in_word

_LINE_BREAK = "(?:\r\n|[\r\n\u2028])"
_BORDER = re.compile(f"[\0-\x09\x0b\x0c\x0e-\x1f\x7f-\x9f\u2029]|(?>{_LINE_BREAK})[^\\S\r\n\u2028]*+{_LINE_BREAK}")
"""A tab or another control character, a paragraph separator, or an empty line, which may have spaces."""

_PLAIN = frozenset(["", " "])


def has_border(text: str) -> bool:
    """Whether the text has a tab, an empty line, or a control character that is no line break."""
    return _BORDER.search(text) is not None


def joins(gap: str) -> bool:
    """Whether an entity may continue after `gap`, the characters between a word and the next one.

    Format characters in it are not seen: a joiner or a mark of direction separates no names, and an empty line may have one.
    """
    if gap in _PLAIN:
        return True
    return not any(map(is_in_word, gap)) and not has_border(
        "".join(char for char in gap if char.isspace() or char < "\xa0")
    )
