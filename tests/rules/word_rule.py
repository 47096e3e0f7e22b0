"""The rule for words once more, as it is promised and not as it is built: character by character."""

from __future__ import annotations

import unicodedata
from itertools import pairwise

HYPHENS = "-\u2010\u2011\u058a\u05be"
APOSTROPHES = "'`\u00b4\u055a\u2018\u2019\uff07"
QUOTES = '"\u201c\u201d\u05f4'
MIDDLE_DOTS = "\u00b7\u318d"
OTHERS = "&_@$\u055b\u055c\u055e\u05f3\ufffd"
OF_NUMBERS = ",:\u066b\u066c"
CONSONANTS = "bcdfghjklmnpqrstvwxz"
ALONE = [
    *((0x0E00, 0x0EFF), (0x1000, 0x109F), (0x1780, 0x17FF), (0x19E0, 0x19FF), (0x3005, 0x3006)),
    *((0x3040, 0x30FF), (0x31F0, 0x31FF), (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xA9E0, 0xA9FF), (0xAA60, 0xAA7F)),
    *((0xF900, 0xFAFF), (0xFF66, 0xFF9F), (0x1AFF0, 0x1B16F), (0x20000, 0x3FFFF)),
]
"""Thai and Lao, Myanmar, Khmer, Han and kana."""


def is_outside(char: str) -> bool:
    """White space, control and format characters begin no word."""
    return char.isspace() or unicodedata.category(char) in {"Cc", "Cf"}


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
    return char.isalnum() and not is_alone(char) and char not in MIDDLE_DOTS


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
    """The end after the last dot of an abbreviation; None if there is none."""
    return (
        _end_of_initials(text, start)
        or _end_of_short_parts(text, start)
        or _end_of_consonants(text, start)
        or _end_of_short_word(text, start)
    )


def _letters(text: str, start: int, most: int) -> list[int]:
    """Where each of up to `most` letters from `start` ends, with its marks."""
    ends: list[int] = []
    at = start
    while len(ends) < most and _is_plain_at(text, at) and text[at].isalpha():
        at = _past_marks(text, at + 1)
        ends.append(at)
    return ends


def _end_of_initials(text: str, start: int) -> int | None:
    """Single letters with their dots, and nothing behind them: `U.S.`."""
    at = start
    while (ends := _letters(text, at, 1)) and _char(text, ends[0]) == ".":
        at = ends[0] + 1
    return at if at > start and not _is_plain_at(text, at) else None


def _end_of_short_parts(text: str, start: int) -> int | None:
    """Up to five parts of up to three letters, with their dots: capitals first, in the last one only: `Ph.D.`."""
    dots, at = list[int](), start
    while len(dots) < 5 and (ends := _letters(text, at, 3)) and _char(text, ends[-1]) == ".":
        if not _is_large(text[at]):
            break
        dots.append(ends[-1] + 1)
        at = dots[-1]
    for before, dot in reversed([*pairwise(dots)]):
        if not _is_plain_at(text, dot) and all(map(_is_large, filter(is_plain, text[before : dot - 1]))):
            return dot
    return None


def _end_of_consonants(text: str, start: int) -> int | None:
    """A capital and up to three consonants, with their dot: `Mrs.`."""
    consonants = 1
    while consonants < 5 and _char(text, start + consonants) in CONSONANTS:
        consonants += 1
    dot = start + consonants
    if text[start] in CONSONANTS.upper() and 2 <= consonants <= 4 and _char(text, dot) == ".":
        return None if _is_plain_at(text, dot + 1) else dot + 1
    return None


def _end_of_short_word(text: str, start: int) -> int | None:
    """Two to four letters, the first a capital, with a dot that ends no sentence: `Inc.,` and `Corp. said`."""
    ends = _letters(text, start, 4)
    if len(ends) < 2 or not _is_capital(text[start]) or _char(text, dot := ends[-1]) != ".":
        return None
    if not all(char.isupper() or char.istitle() or char.islower() for char in text[start:dot] if is_plain(char)):
        return None
    after = _char(text, dot + 1)
    goes_on = (
        after in OF_NUMBERS or _is_possessive(text, dot + 1) or (_ends_chunk(after) and _is_small_at(text, dot + 2))
    )
    return dot + 1 if goes_on else None


def _ends_chunk(char: str) -> bool:
    return char.isspace() or unicodedata.category(char) == "Cc"


def _is_small_at(text: str, at: int) -> bool:
    return _is_plain_at(text, at) and text[at].isalpha() and text[at].islower()


def _is_large(char: str) -> bool:
    """Whether a letter is a capital, or of a script without them."""
    return is_plain(char) and char.isalpha() and not char.islower()


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
    """Letters and digits, and what may join them; then plus signs with nothing behind them."""
    end = start
    while True:
        while _is_plain_at(text, end) or is_mark(_char(text, end)):
            end += 1
        joined = end
        while _is_format(_char(text, joined)):
            joined += 1
        if joined > end and (_is_plain_at(text, joined) or is_mark(_char(text, joined))):
            end = joined
        elif joined == end and _joins(text, start, end) and _is_plain_at(text, end + 1):
            end += 1
        else:
            break
    plus = end
    while _char(text, plus) == "+":
        plus += 1
    return end if _is_plain_at(text, plus) else plus


def _is_format(char: str) -> bool:
    return unicodedata.category(char) == "Cf"


def _is_unknown(char: str) -> bool:
    return unicodedata.category(char) in {"Cn", "Co", "Cs"}


def _joins(text: str, start: int, at: int) -> bool:
    """Whether the character at `at` may join what is around it, if a letter or digit follows."""
    char, before = _char(text, at), text[at - 1]
    small_before = is_mark(before) or _is_small_at(text, at - 1)
    hebrew_around = (is_mark(before) or _is_hebrew(before)) and _is_hebrew(_char(text, at + 1))
    numbers_around = all(_is_plain_at(text, each) and not text[each].isalpha() for each in (at - 1, at + 1))
    return (
        (char in HYPHENS and not (_is_capital(text[start]) and _is_last_and_small(text, at + 1)))
        or (char in APOSTROPHES and not _is_possessive(text, at))
        or (char in OF_NUMBERS and numbers_around)
        or (char == "." and not (small_before and _begins_sentence(text, at + 1)))
        or (char in MIDDLE_DOTS and (small_before or _is_capital(before)))
        or (char in QUOTES and hebrew_around and not _is_plain_at(text, _past_marks(text, at + 2)))
        or char in OTHERS
        or _is_unknown(char)
    )


def _begins_sentence(text: str, at: int) -> bool:
    """Whether a capital and two small letters are there."""
    ends = _letters(text, at, 3)
    return len(ends) == 3 and _is_capital(text[at]) and all(_is_small_at(text, end) for end in ends[:2])


def _is_hebrew(char: str) -> bool:
    return "\u05d0" <= char <= "\u05ea"


def _is_last_and_small(text: str, start: int) -> bool:
    """Whether a part that follows a hyphen is in lower case, and no other follows."""
    end = start
    while is_mark(_char(text, end)) or (_is_plain_at(text, end) and text[end].islower() and text[end].isalpha()):
        end += 1
    after = end + 1 if _char(text, end) in HYPHENS + APOSTROPHES else end
    return end > start and not _is_plain_at(text, after) and not _is_plain_at(text, end)


def is_border(gap: str) -> bool:
    """Whether what is between two words ends an entity. Format characters are not seen."""
    gap = "".join(char for char in gap if not _is_format(char))
    breaks = sum(gap.replace("\r\n", "\n").count(char) for char in "\n\r\u2028")
    others = any(unicodedata.category(char) == "Cc" and char not in "\n\r" for char in gap)
    return bool(gap.strip()) or others or breaks > 1 or "\u2029" in gap
