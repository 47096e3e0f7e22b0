"""Which token decides the label of a word: the first one that stands in it.

A token stands at its first letter or digit, because of tokens such as `(Paris`; without one, at its first character that is
in a word. One of white space alone (a lone `▁`) decides nothing. A token may have several words with nothing between them
that the tokenizer sees, such as letters of scripts without spaces: it decides all that no token before it has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from enricher.worker.rules.words import Words, is_in_word, is_word, match_plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    CharsOf = Callable[[int], tuple[int, int]]


def decided_words(text: str, chars_of: CharsOf, tokens: Iterable[int]) -> Iterator[tuple[int, int, int]]:
    """Yield which of `tokens` decide, by their place in it, and the range of characters `[start, end)` of what they decide.

    `tokens` increase. Ranges do too and do not overlap, whatever the tokenizer says.
    """
    words, read = Words(text), 0
    for place, token in enumerate(tokens):
        start, end = chars_of(token)
        if end <= read:
            continue
        if plain := match_plain(text, start):
            word_start, word_end = plain.span(1)
            # Most words are one token, which no other can be a piece of if a character is a byte.
            if read <= word_start < end <= word_end and (
                start < word_start
                or (end == word_end and plain[1].isascii())
                or not _is_later_piece(text, chars_of, token, start)
            ):
                read = word_end
                yield place, word_start, word_end
                continue
        for word_start, word_end in _words_of(words, text, chars_of, token, read):
            if word_start < word_end:
                yield place, word_start, word_end
            read = word_end


def _words_of(words: Words, text: str, chars_of: CharsOf, token: int, read: int) -> Iterator[tuple[int, int]]:
    """The ranges that a token decides behind `read`; the first is empty if a token before it decides that word."""
    start, end = chars_of(token)
    if (at := anchor(text, start, end)) is None:
        return
    word_start = read
    if at >= read:
        word_start, read = words.at(at)
        # A token that begins before the word has no other before it in the word.
        if start >= word_start and _is_later_piece(text, chars_of, token, word_start):
            word_start = read
    while True:
        read = words.extend(read, end)
        yield word_start, read
        if read >= end or (following := _following(text, read, end)) is None:
            return
        word_start, read = words.at(following)


def _following(text: str, start: int, end: int) -> int | None:
    """The letter or digit that follows in a token behind white space or what cannot be seen."""
    for char in range(start, end):
        if text[char].isalnum():
            return char
        if text[char].isprintable() and text[char] != " ":
            break
    return None


def anchor(text: str, start: int, end: int) -> int | None:
    """The character at which a token `[start, end)` stands; None if it decides nothing."""
    found = None
    for char in range(start, end):
        if text[char].isalnum():
            return char
        if found is None and is_in_word(text[char]):
            found = char
    return found


def _is_later_piece(text: str, chars_of: CharsOf, token: int, word_start: int) -> bool:
    """Whether a token before `token` decides the word that begins at `word_start`."""
    while token:
        token -= 1
        start, end = chars_of(token)
        if end <= word_start and start < end:
            return False
        if (at := anchor(text, start, end)) is not None:
            return at >= word_start or is_word(text[word_start])
    return False
