"""The rule for words once more, as it is promised and not as it is built: character by character."""

from __future__ import annotations

import unicodedata

HYPHENS = "-\u2010\u2011\u05be"
APOSTROPHES = "'`\u00b4\u2018\u2019\uff07"
OTHERS = ".&_@$\u00b7\u05f3\u05f4\ufffd"
OF_NUMBERS = ",:\u066b\u066c"
CONSONANTS = "bcdfghjklmnpqrstvwxz"
ALONE = [
    *((0x0E00, 0x0EFF), (0x1000, 0x109F), (0x1780, 0x17FF), (0x19E0, 0x19FF), (0x3005, 0x3006)),
    *((0x3040, 0x30FF), (0x31F0, 0x31FF), (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xA9E0, 0xA9FF), (0xAA60, 0xAA7F)),
    *((0xF900, 0xFAFF), (0xFF66, 0xFF9F), (0x1AFF0, 0x1B16F), (0x20000, 0x3FFFF)),
]
"""Thai and Lao, Myanmar, Khmer, Han and kana."""


def is_outside(char: str) -> bool:
    """White space and control characters are in no word."""
    return char.isspace() or unicodedata.category(char) == "Cc"


def is_alone(char: str) -> bool:
    """Letters of scripts without spaces, each of which is a word."""
    return char.isalpha() and any(first <= ord(char) <= last for first, last in ALONE)


def is_mark(char: str) -> bool:
    """Combining marks, which belong to what is before them."""
    return unicodedata.category(char).startswith("M")


def is_punctuation(char: str) -> bool:
    """What is in a word and neither a letter nor a digit nor a mark."""
    return not (is_outside(char) or char.isalnum() or is_mark(char))


def is_unseen(char: str) -> bool:
    """White space and characters that are not printed."""
    return char.isspace() or not char.isprintable()


def is_plain(char: str) -> bool:
    """Letters and digits of other scripts."""
    return char.isalnum() and not is_alone(char)


def words(text: str) -> list[tuple[int, int]]:
    """The words of a text, each `[start, end)`."""
    found, start = [], 0
    while start < len(text):
        if is_outside(text[start]):
            start += 1
            continue
        end = _end(text, start)
        found.append((start, end))
        start = end
    return found


def _char(text: str, at: int) -> str:
    return text[at] if at < len(text) else " "


def _past_marks(text: str, at: int) -> int:
    while is_mark(_char(text, at)):
        at += 1
    return at


def _is_plain_at(text: str, at: int) -> bool:
    return is_plain(_char(text, at))


def _end(text: str, start: int) -> int:
    """The end of the word that begins at `start`."""
    if is_alone(text[start]):
        return _past_marks(text, start + 1)
    if _is_possessive(text, start):
        return start + 2
    if not is_plain(text[start]):
        return _past_marks(text, start + 1)
    return _end_of_abbreviation(text, start) or _end_of_article(text, start) or _end_of_parts(text, start)


def _is_possessive(text: str, at: int) -> bool:
    after = _char(text, at + 2)
    apostrophe = _char(text, at) in APOSTROPHES and _char(text, at + 1) in "sS"
    return apostrophe and not is_plain(after) and not is_mark(after)


def _end_of_abbreviation(text: str, start: int) -> int | None:
    """Single letters with their dots; or a capital and up to three consonants with a dot. None if there is none."""
    at = start
    while _is_plain_at(text, at) and (text[at].isalpha()) and _char(text, dot := _past_marks(text, at + 1)) == ".":
        at = dot + 1
    if at > start and not _is_plain_at(text, at):
        return at
    consonants = 1
    while consonants < 5 and _char(text, start + consonants) in CONSONANTS:
        consonants += 1
    dot = start + consonants
    if text[start] in CONSONANTS.upper() and 2 <= consonants <= 4 and _char(text, dot) == ".":
        return None if _is_plain_at(text, dot + 1) else dot + 1
    return None


def _end_of_article(text: str, start: int) -> int | None:
    """Up to eight small letters and an apostrophe, before a capital; else None."""
    at = start
    while at < start + 8 and _char(text, at).islower() and _is_plain_at(text, at):
        at += 1
    if at > start and _char(text, at) in APOSTROPHES and _is_capital(_char(text, at + 1)):
        return at + 1
    return None


def _is_capital(char: str) -> bool:
    return is_plain(char) and char.isalpha() and (char.isupper() or char.istitle())


def _end_of_parts(text: str, start: int) -> int:
    """Letters and digits, and what may join them."""
    end = start
    while True:
        while _is_plain_at(text, end) or is_mark(_char(text, end)):
            end += 1
        joined = end
        if _is_invisible(_char(text, end)):
            while _is_invisible(_char(text, joined)):
                joined += 1
        elif _joins(text, start, end):
            joined += 1
        if joined == end or not _is_plain_at(text, joined):
            return end
        end = joined


def _is_invisible(char: str) -> bool:
    return unicodedata.category(char) in {"Cf", "Cn", "Co", "Cs"}


def _joins(text: str, start: int, at: int) -> bool:
    """Whether the character at `at` may join what is around it, if a letter or digit follows."""
    char = _char(text, at)
    if char in HYPHENS:
        return not (_is_capital(text[start]) and _is_last_and_small(text, at + 1))
    if char in APOSTROPHES:
        return not _is_possessive(text, at)
    if char in OF_NUMBERS:
        return all(_is_plain_at(text, each) and not text[each].isalpha() for each in (at - 1, at + 1))
    return char in OTHERS


def _is_last_and_small(text: str, start: int) -> bool:
    """Whether a part that follows a hyphen is in lower case, and no other follows."""
    end = start
    while is_mark(_char(text, end)) or (_is_plain_at(text, end) and text[end].islower() and text[end].isalpha()):
        end += 1
    after = end + 1 if _char(text, end) in HYPHENS else end
    return end > start and not _is_plain_at(text, after) and not _is_plain_at(text, end)


def is_border(gap: str) -> bool:
    """Whether what is between two words ends an entity."""
    breaks = sum(gap.replace("\r\n", "\n").count(char) for char in "\n\r\u2028")
    others = any(unicodedata.category(char) == "Cc" and char not in "\n\r" for char in gap)
    return bool(gap.strip()) or others or breaks > 1 or "\u2029" in gap
