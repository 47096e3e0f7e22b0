"""Folds names, so that an entity's text and a catalogue's name meet although they are written differently.

Two steps, and no others. `fold`, after which a match counts as `name` or `alias`: NFKC, case, white space (one space for
any run of it), apostrophes, dashes, and no format characters such as soft hyphens and marks of direction. `fold_loosely`,
after which it counts as `folded`: also without the diacritics of Latin, Greek and Cyrillic, the points of Arabic and
Hebrew, and with one letter for ł, ø, đ and their like.

`Spelling` is the first step without case, for names that are searched in a text: it knows where each character was.

Beyond that, the end of a name may be missing on one side: the legal form of an organisation (`split_legal_form`), and the
possessive of an entity (`without_possessive`). Plural and inflection are never folded, and neither is other punctuation:
`U.S.` is not `US`. All of it is deterministic and knows no language.
"""

from __future__ import annotations

import re
import unicodedata
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Literal

from enricher.worker.rules.borders import has_border

_APOSTROPHES = "\u2018\u2019\u201b\u02bc\u02b9\u2032`"
_DASHES = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212\u2043"
_UNSEEN = [0xAD, 0x61C, *range(0x200B, 0x2010), *range(0x202A, 0x202F), *range(0x2060, 0x206A), 0xFEFF]
"""Soft hyphen, zero width, marks and embeddings of direction, byte order mark."""
_LIKE_OTHERS = str.maketrans(
    {**dict.fromkeys(_APOSTROPHES, "'"), **dict.fromkeys(_DASHES, "-"), **dict.fromkeys(_UNSEEN)}
)
_MARKS = re.compile("[\u0300-\u036f\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u064b-\u065f\u0670]+")
_LETTERS = str.maketrans({"ł": "l", "ø": "o", "đ": "d", "ð": "d", "ħ": "h", "ı": "i", "æ": "ae", "œ": "oe", "þ": "th"})
# In a text with few of these characters, a pattern is faster than `str.translate`.
_ODD, _ODD_LETTERS = (re.compile(f"[{''.join(map(chr, table))}]") for table in (_LIKE_OTHERS, _LETTERS))

_FORMS = """
inc incorporated=inc corp corporation=corp co company=co ltd limited=ltd llc llp lp plc pty pte gmbh ag kg kgaa ohg se sa sas
sarl spa srl sro nv bv ab asa as a/s=as aps oy oyj kk jsc ojsc pjsc ooo oao pao
"""
_LEGAL_FORMS = {form: same or form for form, _, same in (each.partition("=") for each in _FORMS.split())}
"""The legal forms, without dots, each with the form that it is the same as."""
_PIECE_CHARS = 1_000
_PIECES = re.compile(rf"(?s:.{{1,{_PIECE_CHARS}}}(?=\s|\Z)|.{{1,{_PIECE_CHARS}}})")
"""Pieces of a text that are normalized alone, words as a whole. Normalizing sorts a run of marks by insertion: a million of
them in an article would take 760 s, in which no other thread runs."""
_NOT_SEEN = f"[{''.join(map(chr, _UNSEEN))}]"
_CHANGING = re.compile(rf"(?! (?!{_NOT_SEEN})\S)\s+(?:{_NOT_SEEN}++\s+)*|`|[!-~]?[^\x00-\x7f\s]{{1,{_PIECE_CHARS}}}")
"""Pieces that `Spelling` may change: runs of white space, also around what nobody sees, and text beyond ASCII with the
letter under its marks."""
_SOUND_MARKS = "\uff9e\uff9f"
"""The sound marks of half-width katakana: letters by Unicode's categories, but marks after NFKC."""
_JAMO = re.compile("[\u1100-\u11ff\ua960-\ua97f\ud7b0-\ud7ff]")


def fold(text: str) -> str:
    """The first step."""
    if text.isascii():
        return " ".join(text.lower().replace("`", "'").split())
    return " ".join(_normal_form("NFKC", _alike(text).casefold()).split())


def fold_loosely(folded: str) -> str:
    """The second step, of a text after the first."""
    if folded.isascii():
        return folded
    bare = _normal_form("NFC", _MARKS.sub("", _normal_form("NFD", folded)))
    return _ODD_LETTERS.sub(lambda found: _LETTERS[ord(found[0])], bare)


class Spelling:
    """A text after the first step, but with its case and the white space at its ends: `text`.

    White space that is a border (`borders.py`), and no other, is a line break there.
    """

    __slots__ = ("_ends", "_source_ends", "_source_starts", "_starts", "text")

    def __init__(self, source: str) -> None:
        # The pieces that differ, in the text and in its source.
        self._starts, self._ends, self._source_starts, self._source_ends = (array("q") for _ in range(4))
        parts, length, read = list[str](), 0, 0
        for start, end, piece in _changes(source):
            parts += source[read:start], piece
            length += start - read
            self._starts.append(length)
            length += len(piece)
            self._ends.append(length)
            self._source_starts.append(start)
            self._source_ends.append(end)
            read = end
        self.text = "".join((*parts, source[read:])) if parts else source

    def source_range(self, start: int, end: int) -> tuple[int, int] | None:
        """The range of the source that a range of the text, which is not empty, was; None if it cuts a character."""
        after = bisect_right(self._ends, start)
        before = bisect_left(self._ends, end)
        if after < len(self._starts) and self._starts[after] < start:
            return None
        source_end = end
        if before < len(self._starts) and self._starts[before] < end:
            if end < self._ends[before]:
                return None
            source_end = self._source_ends[before]
        elif before:
            source_end += self._source_ends[before - 1] - self._ends[before - 1]
        return start + (self._source_ends[after - 1] - self._ends[after - 1] if after else 0), source_end


def _changes(source: str) -> Iterator[tuple[int, int, str]]:
    """The ranges of a text that the first step changes, in order, each with what it makes of them."""
    for found in _CHANGING.finditer(source):
        run = found[0]
        if run[0].isspace():
            if run != " ":
                yield found.start(), found.end(), "\n" if has_border(run.translate(_LIKE_OTHERS)) else " "
        elif run == "`" or _ODD.search(run) or "\u00b4" in run or not unicodedata.is_normalized("NFKC", run):
            for start, end in _characters(run):
                piece = _alike(run[start:end])
                if piece != run[start:end]:
                    yield found.start() + start, found.start() + end, piece


def _characters(run: str) -> Iterator[tuple[int, int]]:
    """The ranges of what a reader takes for one character: with its marks, and Korean letters that make a syllable."""
    start = 0
    for i in range(1, len(run)):
        is_mark = unicodedata.category(run[i])[0] == "M" or run[i] in _SOUND_MARKS
        if not is_mark and not (_JAMO.match(run[i]) and _JAMO.match(run[i - 1])):
            yield start, i
            start = i
    yield start, len(run)


def _alike(text: str) -> str:
    """The text in NFKC, with one character for all that look alike."""
    return _ODD.sub(lambda found: _LIKE_OTHERS[ord(found[0])] or "", _normal_form("NFKC", text.replace("\u00b4", "'")))


def split_legal_form(loose: str) -> tuple[str, str]:
    """The name of an organisation without its legal form, and the form: `acme` and `gmbh co kg` of `acme gmbh & co. kg`.

    The form is empty if there is none, and if nothing but forms would be left.
    """
    if _legal_form(loose.rpartition(" ")[2]) is None:
        return loose, ""
    words, forms = loose.split(" "), list[str]()
    while len(words) > 1 and (words[-1] == "&" or _legal_form(words[-1])):
        forms.insert(0, _legal_form(words.pop()) or "")
    name = " ".join(words).rstrip(",")
    if not name or _legal_form(name):
        return loose, ""
    return name, " ".join(filter(None, forms))


def _legal_form(word: str) -> str | None:
    return _LEGAL_FORMS.get(word.replace(".", "").rstrip(","))


def without_possessive(folded: str) -> str:
    """The text of an entity without `'s`, or without the apostrophe after an s."""
    if folded.endswith("'s"):
        return folded[:-2]
    return folded[:-1] if folded.endswith("s'") else folded


def _normal_form(form: Literal["NFC", "NFD", "NFKC"], text: str) -> str:
    if len(text) <= _PIECE_CHARS:
        return unicodedata.normalize(form, text)
    return "".join(unicodedata.normalize(form, piece) for piece in _PIECES.findall(text))
