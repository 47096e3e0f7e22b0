"""The words of a text, each of which gets one label. They depend on the text alone, so they are the same for all tokenizers.

The rule is that of people who mark names, and of the corpora on which taggers are trained:

- White space, control and format characters end a word and are in no word, except for format characters between letters.
- Every other punctuation mark or symbol is a word: brackets, quotes, slashes, dashes, emoji. Plus signs that end a chunk
  belong to the letters before them (`Canal+`).
- Hyphens, apostrophes, dots and a few others (`&`, `_`, `@`, `$`, what is no known character) are inside a word if just one
  of them stands between letters or digits: `Jean-Luc`, `O'Brien`, `AT&T`. So are commas and colons between digits, middle
  dots between letters that have cases (`Gal·la`), and a quote before the last letter of a Hebrew acronym.
- A dot before a capital and two small letters is a full stop that lacks its space, if a small letter is before it.
- A dot behind a word belongs to it if the word is single letters (`U.S.`, `J.`), short parts with dots (`Ph.D.`, `EE.UU.`),
  or a capital with up to three consonants (`St.`, `Mrs.`, `Ltd.`). Behind a capital with up to three letters of any kind it
  does if the sentence goes on with a comma, a colon, a possessive or a small letter (`Inc.,`, `Corp. said`).
- The possessive (`'s`) is a word, and so is an elided article before a capital (`d'Emmanuel`). A hyphen and a last part in
  lower case are words after a capitalised one: `Paris-based` is three words, `Stratford-upon-Avon` and `Val-d'Oise` are one.
- In scripts that write no spaces (Han, kana, Thai, Lao, Khmer, Myanmar), each letter is a word.
- Combining marks belong to the character before them.

The rule knows no language, so endings that a language joins to the word stay in it: `Ankara'da`, `서울에서`.

The label of a word is that of the first token that stands in it. A token stands at its first letter or digit, because of
tokens such as `(Paris`; without a letter or digit, at its first character that is in a word. A token of white space alone (a
lone `▁`) decides nothing. A token may have several words with nothing between them that the tokenizer sees, such as letters
of scripts without spaces: it decides all of them that no earlier token decides.

Time is linear in the text, whatever it contains, and text where no word is looked up costs nothing.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator

CharsOf = Callable[[int], tuple[int, int]]

_GIVEN = {
    **dict.fromkeys("-\u2010\u2011\u058a\u05be", "-"),
    **dict.fromkeys("'`\u00b4\u055a\u2018\u2019\uff07", "'"),
    **dict.fromkeys("&_@$\u055b\u055c\u055e\u05f3\ufffd", "&"),
    **dict.fromkeys("\u00b7\u318d", "\u00b7"),
    **dict.fromkeys('"\u05f4\u201c\u201d', '"'),
    **dict.fromkeys(",:\u066b\u066c", ","),
    **dict.fromkeys("bcdfghjklmnpqrtvwxz", "k"),
    **dict.fromkeys("BCDFGHJKLMNPQRTVWXZ", "K"),
    **dict.fromkeys(map(chr, range(0x5D0, 0x5EB)), "h"),
    **{each: each for each in ".+sS"},
}
"""Characters whose class does not follow from Unicode's categories."""
_WITHOUT_SPACES = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u19e0-\u19ff\u3005-\u3006\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf"
    "\u4e00-\u9fff\ua9e0-\ua9ff\uaa60-\uaa7f\uf900-\ufaff\uff66-\uff9f\U0001aff0-\U0001b16f\U00020000-\U0003ffff]"
)
_FIRST_WITHOUT_SPACES = "\u0e00"
_MOST_CACHED = 20_000
"""Characters whose class is kept: more than a newspaper has, because a hostile text may have a million."""


class _Classes(dict[int, str]):
    """The class of a character, a letter that `_WORD` reads, by its code point; found when it is first needed."""

    def __missing__(self, code_point: int) -> str:
        char = chr(code_point)
        found = _GIVEN.get(char) or (_class_of_letter(char) if char.isalnum() else _class_of_other(char))
        if len(self) < _MOST_CACHED:
            self[code_point] = found
        return found


def _class_of_letter(char: str) -> str:
    """`0` digits, `H` without spaces, `U` capitals, `l` small letters, `o` letters of scripts that have neither."""
    if not char.isalpha():
        return "0"
    if _WITHOUT_SPACES.match(char):
        return "H"
    return "U" if char.isupper() or char.istitle() else "l" if char.islower() else "o"


def _class_of_other(char: str) -> str:
    """` ` white space and control characters, `F` format characters, `M` marks, `&` unknown characters, `#` all others."""
    category = unicodedata.category(char)
    if char.isspace() or category == "Cc":
        return " "
    return "F" if category == "Cf" else {"C": "&", "M": "M"}.get(category[0], "#")


_CLASSES = _Classes()
_OUTSIDE = frozenset(" F")
_LETTER, _ANY = "[UKSlksoh]", "[UKSlksoh0]"
_POSSESSIVE = f"'[sS](?!{_ANY}|M)"
_WORD = re.compile(
    rf"""
    HM*
  | (?:{_LETTER}M*\.)++ (?!{_ANY})                                                  # U.S.  J.
  | (?:[UKSoh]M*+(?:{_LETTER}M*+){{0,2}}\.){{1,4}} (?:[UKSoh]M*+){{1,3}}\. (?!{_ANY})  # Ph.D.  EE.UU.
  | [KS][ks]{{1,3}}\. (?!{_ANY})                                                    # St.  Mrs.  Ltd.
  | [UKS]M*+(?:[UKSlks]M*+){{1,3}}\. (?=,|\ [lks]|{_POSSESSIVE})                    # Inc.,  Corp. said
  | [kls]{{1,8}}'(?=[UKS])                                                          # d'  dell'
  | {_POSSESSIVE}
  | (?:([UKS])|{_ANY}) [UKSlksoh0M]*+ (?:
        (?: (?!{_POSSESSIVE})' | \.(?!(?<=[lksM]\.)[UKS]M*[lks]M*[lks]) | & | (?<=[UKSlksM])\u00b7 | (?<=0),(?=0)
          | (?<=[hM])"(?=hM*+(?!{_ANY})) | -(?(1)(?![klsM]++(?!['-]?{_ANY}))) ) (?={_ANY}) [UKSlksoh0M]++
      | F++ (?:{_ANY}|M) [UKSlksoh0M]*+
    )*+ (?:\+++(?!{_ANY}))?+
  | [^ F]M*
    """,
    re.VERBOSE,
)
"""The rule as a pattern over classes."""
STARTS = ' \n\t\u00a0(["\u201c\u201e\u00ab/\u2013\u2014'
"""Some characters after which a word begins, whatever follows."""
ENDS = ' \n\t\u00a0,;:!?)]"\u201d\u00bb/\u2013\u2014'
"""Some characters before which a word of letters ends, whatever follows."""
_LETTERS = "A-Za-z\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u024f\u0391-\u03a1\u03a3-\u03ce\u0400-\u0481\uac00-\ud7a3"
"""Some letters, as the ranges of a pattern."""
_START, _END = f"[{re.escape(STARTS)}]", f"(?:[{re.escape(ENDS)}]|\\Z)"
match_plain = re.compile(
    rf"{_START}{{0,2}}+ (?:(?<={_START}) | \A) ([{_LETTERS}]{{1,40}}+)"
    rf"(?={_END} | (?<=[{_LETTERS}]{{5}})\.(?:\s|\Z) | ['\u2019]s{_END})",
    re.VERBOSE,
).match
"""Nine of ten names in English: words of letters, behind white space or a bracket. A dot may belong to a shorter one."""
_CHUNK = re.compile(r"\S+")
_LOOK_BACK_CHARS = 32
"""The characters that are looked at first: most chunks between white space are shorter. For a longer chunk it is four
times as many, and so on."""


class Words:
    """Looks up words of one text. Positions that increase cost least: a chunk between white space is then read once."""

    __slots__ = ("_base", "_chunk_end", "_matches", "_position", "_text")

    def __init__(self, text: str) -> None:
        self._text = text
        self._base = self._position = self._chunk_end = 0
        self._matches: Iterator[re.Match[str]] = iter(())

    def at(self, char: int) -> tuple[int, int]:
        """The word at `char` as a range `[start, end)`. `is_in_word` must hold of the character."""
        text = self._text
        plain = match_plain(text, char)
        if plain and plain.start(1) == char:
            return plain.span(1)
        if is_word(text[char]):
            end = char + 1
            while end < len(text) and _CLASSES[ord(text[end])] == "M":
                end += 1
            return char, end
        if not self._position <= char < self._chunk_end:
            self._enter_chunk(char)
        for match in self._matches:
            self._position = self._base + match.end()
            if self._position > char:
                return self._base + match.start(), self._position
        raise AssertionError(char)

    def extend(self, end: int, until: int) -> int:
        """The end of a word at `end` with those that follow at once and begin before `until`.

        Such words are letters of scripts without spaces, and what is beside them in other scripts.
        """
        text = self._text
        while end < until and text[end].isalnum() and _CLASSES[ord(text[end - 1])] != "'":
            _, end = self.at(end)
        return end

    def _enter_chunk(self, char: int) -> None:
        self._base, self._chunk_end = chunk_around(self._text, char)
        self._position = self._base
        self._matches = _words_of_chunk(self._text, self._base, self._chunk_end)


class WordBorders:
    """The places where words of a text begin and end. If the ranges increase, each chunk is read at most once."""

    __slots__ = ("_ends", "_read", "_starts", "_text")

    def __init__(self, text: str) -> None:
        self._text, self._read = text, 0
        # A byte for each place: sets took 130 MB for a million brackets.
        self._starts, self._ends = bytearray(len(text) + 1), bytearray(len(text) + 1)

    def are_at(self, start: int, end: int) -> bool:
        """Whether a word begins at `start`, which is not white space, and one ends at `end`."""
        if start >= self._read:
            self._read = chunk_around(self._text, start)[0]
        while self._read < end and (chunk := _CHUNK.search(self._text, self._read)):
            base, self._read = chunk.span()
            for word in _words_of_chunk(self._text, base, self._read):
                if base + word.start() >= self._read:
                    break
                self._starts[base + word.start()] = self._ends[base + word.end()] = True
        return bool(self._starts[start] and self._ends[end])


def _words_of_chunk(text: str, start: int, end: int) -> Iterator[re.Match[str]]:
    """The words of a chunk, at places counted from its start, and perhaps some behind it.

    Two more characters show whether a dot is followed by a small letter.
    """
    return _WORD.finditer(text[start : end + 2].translate(_CLASSES))


def chunk_around(text: str, char: int) -> tuple[int, int]:
    """The characters `[start, end)` between white space around `char`, which is not white space."""
    start, look_back = char, _LOOK_BACK_CHARS
    while start and not text[start - 1].isspace():
        low = max(0, char - look_back)
        start = char - len(text[low:char].rsplit(None, 1)[-1])
        if start > low:
            break
        look_back *= 4
    found = _CHUNK.match(text, char)
    assert found
    return start, found.end()


def is_word(char: str) -> bool:
    """Whether a character, with its marks, is a word: a letter of a script without spaces."""
    return char >= _FIRST_WITHOUT_SPACES and _CLASSES[ord(char)] == "H"


def is_in_word(char: str) -> bool:
    """Whether a character is in a word: white space, control and format characters are not.

    A format character between letters is in their word, but no word is looked up by it.
    """
    return _CLASSES[ord(char)] not in _OUTSIDE


def decided_words(text: str, chars_of: CharsOf, tokens: Iterable[int]) -> Iterator[tuple[int, int, int]]:
    """Yield the index in `tokens` of each token that decides, and the range of characters `[start, end)` that it decides.

    `tokens` increase. The ranges increase too and do not overlap, whatever the tokenizer says.
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
    """The letter or digit that follows in a token behind white space or invisible characters; None if there is none."""
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
