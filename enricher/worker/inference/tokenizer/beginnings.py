"""Tokenizes only the beginning of a very long text if only its first tokens are kept.

A megabyte of exclamation marks has a million tokens, of which an article keeps 100,000. Tokenizing all of it took 1.6 s of
a core and 558 MB; its beginning takes 0.12 s and 62 MB. A beginning has the same tokens as the whole text, up to the word
in which it is cut.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from tokenizers import Encoding

_SPARE = 1.25
"""Margin on every estimate, so that few are too low."""


def is_long(text: str, max_tokens: int) -> bool:
    """Whether a text may have far more than `max_tokens` tokens, at one token per character."""
    return len(text) > 2 * int(_SPARE * max_tokens)


def encode_beginning(text: str, max_tokens: int, encode: Callable[[str], Encoding | None]) -> Encoding | None:
    """The encoding of a beginning with the first `max_tokens` tokens of `text` and one more, or of the whole text.

    `encode` returns None for a text that it refuses. The first estimate assumes one token per character, the highest
    density; later ones use the density that was found.
    """
    chars = int(_SPARE * max_tokens)
    while 2 * chars < len(text):
        tokens = encode(text[:chars])
        if tokens is None:
            break
        last = len(tokens) - 1
        # Enough, if the first surplus token is in a word before the last one, which may have been cut.
        if last > max_tokens and tokens.token_to_word(max_tokens) != tokens.token_to_word(last):
            return tokens
        chars = max(2 * chars, int(_SPARE * max_tokens * chars / max(1, len(tokens))))
    return encode(text)
