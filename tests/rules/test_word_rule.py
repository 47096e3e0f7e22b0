"""The words of a text: the rule, case by case; against the rule written once more; and hostile texts."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rules.word_rule import is_alone, is_outside, words

from enricher.worker.rules import words as words_module
from enricher.worker.rules.words import ENDS, STARTS, Words, is_in_word, is_word

CASES = {
    "Macron, in Paris.": "Macron|,|in|Paris|.",
    '(of Paris) said: "Berlin"!': '(|of|Paris|)|said|:|"|Berlin|"|!',
    "Merkel's Macron’s MERKEL'S boys'": "Merkel|'s|Macron|’s|MERKEL|'S|boys|'",
    "McDonald's-owned": "McDonald|'s|-|owned",
    "Paris—London Rome–Milan A--B Oslo/Bergen": "Paris|—|London|Rome|–|Milan|A|-|-|B|Oslo|/|Bergen",
    "Jean-Luc O'Brien AT&T A$AP l·l": "Jean-Luc|O'Brien|AT&T|A$AP|l·l",
    "the U.S. and J. K. Rowling, e.g. W.H.O": "the|U.S.|and|J.|K.|Rowling|,|e.g.|W.H.O",
    "St. Petersburg, Mrs. May, Ltd. Art. Rome. UN. Mr.X": "St.|Petersburg|,|Mrs.|May|,|Ltd.|Art|.|Rome|.|UN|.|Mr.X",
    "d'Emmanuel dell’Utri D'Angelo L'Oréal aujourd'hui": "d'|Emmanuel|dell’|Utri|D'Angelo|L'Oréal|aujourd'hui",
    "Paris-based U.S.-based EU-Kommission al-Assad": "Paris|-|based|U.S.|-|based|EU-Kommission|al-Assad",
    "Stratford-upon-Avon Marne-la-Vallée state-of-the-art": "Stratford-upon-Avon|Marne-la-Vallée|state-of-the-art",
    "1,000.50 10:30 2-1 Paris,Rome 1,a": "1,000.50|10:30|2-1|Paris|,|Rome|1|,|a",
    "@Boris_J #Berlin a.b@c.fr **x** <b>y</b>": "@|Boris_J|#|Berlin|a.b@c.fr|*|*|x|*|*|<|b|>|y|<|/|b|>",
    "默克尔在北京。GDP增长3.5%": "默|克|尔|在|北|京|。|GDP|增|长|3.5|%",
    "安倍は東京でメルケル": "安|倍|は|東|京|で|メ|ル|ケ|ル",
    "กรุงเทพ ລາວ ខ្មែរ မြန်မာ": "ก|รุ|ง|เ|ท|พ|ລ|າ|ວ|ខ្|មែ|រ|မြ|န်|မာ",
    "한국에서 हिन्दी בעברית العربية Москва": "한국에서|हिन्दी|בעברית|العربية|Москва",
    "Zoe\u0301 \u0301 e\u0301-e\u0301": "Zoe\u0301|\u0301|e\u0301-e\u0301",
    "Mer\u00adkel\u200b \ufeffAnna Anna\u200d": "Mer\u00adkel|Anna|Anna",
    "Paris\U0001f1eb\U0001f1f7 \u2764": "Paris|\U0001f1eb|\U0001f1f7|\u2764",
    "Angela\0Merkel a\x7fb\x9fc": "Angela|Merkel|a|b|c",
    "a\u00a0b\u3000c\u2028d\u2029e\x85f\x1cg\vh\r\ni\tj": "a|b|c|d|e|f|g|h|i|j",
}
"""Each text with its words."""
CHARACTERS = "aBsSkKdé.,'’-&_@$+ \n\t\0\u0301\u00ad\u200b中กิ01:/(\")한ㆍא״\u05beǅªⅣ½〇ー·ʼ\u055e\ue000\U0001d4d0👩हि"
PARTS = (
    *("St.", "Mrs.", "Jean-Luc", "Paris-based", "d'Emmanuel", "O'Brien's", "U.S.", "J.", "Stratford-upon-Avon", "AT&T"),
    *(
        "1,000",
        "Ltd.,",
        "Merkel’s",
        "中文",
        "ไทย",
        "Zoe\u0301",
        "Mer\u00adkel",
        "McDonald's-owned",
        "Angela Merkel, ",
        "\u0301\u0301",
    ),
    *("Inc.,", "Corp. of", "Ph.D.", "EE.UU.", "Paris.The", 'צה"ל', "র\u200c\u09cdযাব", "Canal+", "Val-d'Oise", "l·l"),
)
TEXTS = st.lists(st.sampled_from(CHARACTERS) | st.sampled_from(PARTS) | st.characters(), max_size=30).map("".join)


def found(text: str) -> list[tuple[int, int]]:
    """All words, looked up one after the other."""
    lookup, ranges, char = Words(text), list[tuple[int, int]](), 0
    while char < len(text):
        if is_in_word(text[char]):
            ranges.append(lookup.at(char))
            char = ranges[-1][1]
        else:
            char += 1
    return ranges


@pytest.mark.parametrize("text", CASES)
def test_a_text_has_these_words(text: str) -> None:
    """One line for each sentence of the rule."""
    assert CASES[text].split("|") == [text[start:end] for start, end in found(text)]
    assert CASES[text].split("|") == [text[start:end] for start, end in words(text)]


@given(TEXTS)
def test_words_are_those_of_the_rule_written_once_more(text: str) -> None:
    """The other implementation takes one character after the other. Only format characters may be in a word or in none."""
    expected = words(text)
    assert expected == found(text)
    inside = {char for start, end in expected for char in range(start, end)}
    unseen = {char for char in range(len(text)) if is_outside(text[char])}
    assert inside | unseen == {*range(len(text))}
    assert {unicodedata.category(text[char]) for char in inside & unseen} <= {"Cf"}


@given(TEXTS, st.data())
def test_a_word_is_the_same_however_it_is_looked_up(text: str, data: st.DataObject) -> None:
    """From any of its characters, in any order. A letter that is a word is looked up from itself, its mark from either."""
    lookup = Words(text)
    for start, end in data.draw(st.permutations(words(text))):
        char = data.draw(st.integers(start, end - 1))
        assert (start, end) == lookup.at(char)
        assert is_alone(text[start]) == is_word(text[start])


def test_borders_of_plain_words_are_borders_for_any_neighbour() -> None:
    """What the quick ways rely on: these characters are in no word of letters beside them, whatever is around."""
    for around in "aZsé1中'. \u0301":
        for mark in STARTS:
            text = f"Ab{around}{mark}Anna"
            assert len(text) - 4 in [start for start, _ in words(text)]
        for mark in ENDS:
            assert (1, 5) in words(f" Anna{mark}{around}s")


class Counting(str):
    """A text that counts how many of its characters are taken out of it."""

    taken = 0

    def __getitem__(self, key: object) -> str:
        """The same."""
        piece = super().__getitem__(key)  # type: ignore[index]
        Counting.taken += len(piece)
        return piece


@pytest.mark.parametrize(
    "unit",
    [
        "'",
        ".",
        "a.",
        "A-",
        "a-a-A",
        "\u0301",
        "e\u0301",
        "\u00ad.",
        "a\u00ad",
        "Aab.",
        "AA.",
        "I\u0301nc.,",
        'א"',
        "a+",
        ",",
        "1,",
        "#",
        "@a.",
        "กิ",
        "中\u0301",
        "a'",
        "A'b",
        "a\0",
        "St.",
    ],
)
def test_hostile_texts_are_read_in_linear_time(unit: str) -> None:
    """Looking up every word of a text without white space takes each of its characters out a bounded number of times."""
    text = Counting(unit * (20_000 // len(unit)))
    Counting.taken = 0
    assert found(text)
    assert Counting.taken < 100 * len(text)


def test_the_classes_that_are_kept_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A text of all characters that there are does not stay in memory."""
    monkeypatch.setattr(words_module, "_MOST_CACHED", 100)
    classes = words_module._Classes()
    assert ["H"] * 500 == [classes[number] for number in range(0x4E00, 0x4E00 + 500)]
    assert len(classes) == 100
