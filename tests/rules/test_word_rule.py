"""The words of a text, the borders that no entity crosses, and addresses: case by case, and by word_rule.py."""

from __future__ import annotations

import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rules.building import Counting
from rules.word_rule import is_alone, is_border, is_outside, words

from enricher.worker.rules import words as words_module
from enricher.worker.rules.borders import Addresses, has_border, joins
from enricher.worker.rules.words import ENDS, STARTS, Words, is_in_word, is_word

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


CASES = {
    "English possessives": "Merkel|'s James|' the Joneses|' James|'s U.S.|'s U.S.|’ Smith|`s Co.|'s Apple|™|’s it|'s don't",
    "English hyphens": "Paris|-|based Guinea-Bissau|-|born COVID-19|-|related U.S.|-|China pro-Beijing Trump-Putin",
    "English titles": "Ph.D. Washington|, D.C. St. Louis Ft. Worth Jr.|, J.K. Rowling Mr.X a.m. (|D-Calif|.|) U.S.A C.I.A.",
    "English companies": "Apple Inc.|, Corp. said Bros.|: Ltd. AT&T H&M S&P 500 Amazon.com Canal+ TV+|, Yahoo|! J.Crew",
    "English full stops": "in Rome|. Then Art|.|) News|. Paris|.|The end|.|Next Wait|…|Paris Stay|.|.|. Then No|. 10 |.|NET",
    "English quotes": "‘|Paris|’s mayor|’ \"|‘|Oslo|’|\" “|He|” '|80s rock |'|n|'| roll Toys |\"|R|\"| Us '|Tis",
    "English dashes": "Paris|—|London Rome|–|Milan A|-|-|B |-|Paris Oslo|- (|AP|) |—| The 10|–|12 and|/|or 9|/|11",
    "signs": "#|BLM @|BBC_News Ke$ha C++ a|+|b *|*|x|*|* [|1|] Paris|[|1|] Paris|.|[|2|] (|A|[|B|]|) <|b|> 5|′ §|9",
    "numbers": "1,000 10.0.0.1 3.5|% 10:30 COVID-19 F-16 U2 MH370 R2-D2 7-Eleven $|5bn €|5bn US$5 20|°|C 7|, 2020-21 ½",
    "French articles": "l'|Oréal L'Oréal l’|ONU d’|Estaing aujourd'hui qu'|Emmanuel l'état Côte d'|Ivoire L’Équipe",
    "French hyphens": "Val-d'Oise Villeneuve-d’Ascq Boulogne-sur-Mer Saint-Étienne Macron|-|là a-t-il L'Haÿ-les-Roses",
    "French signs": "«|Paris|» « Paris » étudiant·e·s R.A.T.P. M. Macron |: oui",
    "Italian": "dell'|Utri dell’|Unione D'Alema D’Annunzio all'|Aquila un'azienda po|' nell'|Emilia Forlì-Cesena S.p.A.",
    "Spanish": "EE.UU. visitó EE|. UU. y CC.OO. Cía. de Cı\u0301a. de S.A. de C.V. ¿|Madrid|? ¡|Barça|! Castelló-València",
    "Catalan": "Paral·lel GAL·LA l'|Hospitalet d'|Esquerra S'Agaró Sant Cugat",
    "German": "Merkels Hans|' Grass|’ Andrea|'s z.B. h.c. III. starb IV. und Nr. 7|, St. Pauli Ost|- und G-20-Gipfel",
    "German signs": "CDU|/|CSU Frankfurt|(|Oder|) „|Paris|“ »|Rom|« Bürger|*|innen Bürger_innen SPD|-|geführt VW-Chef",
    "Dutch": "Gerard |’|t Hooft d'|Hondt D66|-|leider PvdA|-|voorzitter foto|'s Noord-Holland 's|-|Hertogenbosch",
    "Turkish": "Ankara'da İstanbul’un AB'nin ABD'ye I\u0307stanbul'da",
    "Polish, Swedish, Finnish, Hungarian": "Kennedy'ego EU|:|s Nokia|:|n EU|-|ban Bielsko-Biała",
    "Irish, Hawaiian, Uzbek": "Seán O’Casey hUigínn Hawaiʻi Hawai‘i ʻOkina O‘zbekiston Oʻzbekiston Farg‘ona",
    "names in Latin letters": "Xi'an Sana'a Ma'rib Qur'an Nuku'alofa L'viv al-Assad Kim Jong|-|un",
    "Arabic": "قالت ميركل|، إن برلين|؛ باريس|؟ مُحَمَّد محـــمد «|القاهرة|» وبالقاهرة ٣٫٥ ١٬٠٠٠ أ.ب. کے|۔",
    "Persian": "می\u200cرود خامنه\u200cای ایران\u200cها",
    "Hebrew acronyms": 'צה"ל צה״ל צה”ל ארה"ב|, רַשִׁ"י|. "|הארץ|" ב|"|הארץ|" ב|״|הארץ|״',
    "Hebrew": "ז'בוטינסקי ז׳בוטינסקי תל־אביב תל-אביב יִשְׂרָאֵל",
    "Hindi": "नरेन्द्र मोदी ने कहा|। दिल्ली|॥ ज़ैदी ज\u093cैदी क्\u200dष मोदी-शाह",
    "Bengali": "র\u200c\u09cd\u09afাব বাংলাদেশ|। বন্দ্যোপাধ্যায়|, ডা. মমতা",
    "Tamil": "மு.க. ஸ்டாலின் சென்னையில் எம்.ஜி.ஆர்.",
    "Korean": '서울에서 문재인|·|김정은 문재인|ㆍ|김정은 LG전자 KBS는 ‘|조선일보|’ "|서울|"|이 《|조선|》 김정은|(|36|)',
    "Japanese": "G7|首|脳 AI|技|術 レ|オ|・|ダ|・|ヴ|ィ 「|東|京|」 佐|々|木 ロ|ー|マ|、 ガ\u3099|ス ＮＨＫ|は 2020|年",
    "Chinese": "默|克|尔|·|安 《|人|民|》|、|“|新|华|” GDP|增|长|3.5|% 5G|网|络 AT&T|公|司 𠮷|野 〇|一 葛\U000e0100|城",
    "Thai, Lao, Khmer, Burmese": "ก|รุ|ง|เ|ท|พ|ฯ พ|ล|.|อ|. ต่|า|ง|ๆ ນ|ຳ ភ្|នំ|ពេ|ញ|។ រ|\u200bន ရ|န်|ကု|န်|၊",
    "Greek": "Παπανδρέου|· είπε Παπανδρέου|\u0387 το\u0301ν Αθήνα|; ΠΑ.ΣΟ.Κ. ΣΥ.ΡΙΖ.Α. απ|' την τ'|Αλέξη",
    "Russian": "Санкт-Петербург Ростов-на-Дону В.В. Путин г. Москва «|Газпром|» США|-|подобный Газета.Ru Й и\u0306",
    "Ukrainian": "Лук'янівка В’ячеслав Мар’яна Київ’ський об'єднання Йо\u0301зеф",
    "Armenian": "Երևան|։ Հայաստա՛ն Երևանո՞ւմ",
    "Amharic, Tibetan, Georgian": "አዲስ|፡|አበባ|። བོད|་|ལྗོངས|། თბილისი",
    "Vietnamese": "Nguyễn Nguye\u0302\u0303n Phu\u0301 TP.HCM Bà Rịa|–|Vũng Tàu|,",
    "emoji": "👍|🏽 👩|\u200d🚀 Paris|🇫|🇷 ❤\ufe0f 1\ufe0f\u20e3",
    "what is not seen": "Mer\u00adkel Par\u2060is \u200eParis|\u200e, \u2068Paris|\u2069's \ufeffOslo An\u200bna",
    "white space and controls": "Angela\0Merkel a\x7fb\x9fc a\u00a0b\u3000c\u2028d\u2029e\x85f\x1cg\vh\r\ni\tj",
    "marks": "Zoe\u0301 \u0301 e\u0301-e\u0301",
    "what is not known": "of\ue000ce \U0001d4d0ngela Zoe\u0301|, a\u0378b",
}  # fmt: skip
"""A format character outside of letters is in no word: it stands before one here, and is taken off."""


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


@pytest.mark.parametrize("name", CASES)
def test_words_are_those_that_people_mark(name: str) -> None:
    """The text is cut at its bars, white space and control characters, and nowhere else: by the other implementation too."""
    expected = [
        part.lstrip("\u200b\u200d\u200e\u2068\u2069\ufeff")
        for part in re.sub(r"[|\s\0\x7f-\x9f]", " ", CASES[name]).split()
    ]
    text = CASES[name].replace("|", "")
    assert expected == [text[start:end] for start, end in found(text)]
    assert expected == [text[start:end] for start, end in words(text)]


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


WORD_UNITS = (
    "' . a. A- a-a-A \u0301 e\u0301 \u00ad. a\u00ad Aab. AA. I\u0301nc., א\" a+ , 1, # @a. กิ 中\u0301 a' A'b St."
)
ADDRESS_UNITS = "a@ a. www. :// a/ @a.b mailto: a.bc/"


@pytest.mark.parametrize("unit", [*WORD_UNITS.split(" "), "a\0"])
def test_hostile_texts_are_read_in_linear_time(unit: str) -> None:
    """Looking up every word of a text without white space takes each of its characters out a bounded number of times."""
    text = Counting(unit * (20_000 // len(unit)))
    Counting.taken = 0
    assert found(text)
    assert Counting.taken < 100 * len(text)


@pytest.mark.parametrize("unit", ADDRESS_UNITS.split(" "))
def test_a_text_without_white_space_is_read_once(unit: str) -> None:
    """Asking whether every place in it is in an address takes each of its characters out a bounded number of times."""
    text = Counting(unit * (10_000 // len(unit)))
    Counting.taken = 0
    addresses = Addresses(text, len(text))
    for place in range(len(text)):
        addresses.contain(place, place + 1)
    assert Counting.taken < 10 * len(text)


def test_the_classes_that_are_kept_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A text of all characters that there are does not stay in memory."""
    monkeypatch.setattr(words_module, "_MOST_CACHED", 100)
    classes = words_module._Classes()
    assert ["H"] * 500 == [classes[number] for number in range(0x4E00, 0x4E00 + 500)]
    assert len(classes) == 100


@pytest.mark.parametrize(
    ("gap", "crossed"),
    [
        ("", True),
        (" \r\n  ", True),  # a line break may be a wrap
        ("\u3000\u200e", True),  # nobody sees a mark of direction
        ("\n \t\n", False),
        ("\r\n\n", False),
        ("\u2029", False),
        ("\t", False),  # cells of a table, and records
        ("\f", False),
        ("\x1c", False),
        ("\x7f", False),
    ],
    ids=ascii,
)
def test_empty_lines_tabs_and_control_characters_are_borders(gap: str, *, crossed: bool) -> None:
    """Between words, and in a text that has one of them somewhere. Spaces and one line break are crossed."""
    assert crossed is joins(gap)
    assert crossed is not has_border(f"a{gap}b")


@given(st.text(st.sampled_from(" \n\r\t\u2028\u2029\u00a0\v\0a\u200b\x85"), max_size=6))
def test_borders_are_those_of_the_rule_written_once_more(gap: str) -> None:
    """The other implementation counts line breaks."""
    assert is_border(gap) is not joins(gap)


def inside(text: str) -> bool:
    """Whether the part between brackets `[...]` is in an address."""
    start, end = text.index("["), text.index("]") - 1
    return Addresses(text.replace("[", "", 1).replace("]", "", 1), end).contain(start, end)


@pytest.mark.parametrize(
    "text",
    [
        "see https://www.berlin.de/angela-[merkel] now",
        "see [https]://www.berlin.de",
        "(www.[berlin].de)",
        "[www.berlin.de]",
        "mailto:[merkel]",
        "nytimes.com/[world]",
        "mail [angela.merkel]@paris.fr",
        "mail angela@[paris.fr], now",
        "[angela@paris.fr]",
        "@angela@[social.paris.fr]",
        "见https://www.[berlin].de。",
        "ftp://x.y/?a=[Paris]&b",
        "<https://[berlin].de>",
        "https://a.org/wiki/Paris_([Texas])",
        "https://a.org/?q=a,[Rome],b",
    ],
)
def test_a_part_of_an_address_is_in_it(text: str) -> None:
    """URLs, hosts with a path, and e-mail addresses, wherever they stand."""
    assert inside(text)


@pytest.mark.parametrize(
    "text",
    [
        "[Angela Merkel] met",
        "@[BorisJohnson]",
        "@[Boris_Johnson]:",
        "#[Berlin]",
        "[Amazon.com] Inc.",
        "[Oslo]/Bergen",
        "AC/[DC]",
        "Oslo.[Bergen]/Paris",
        "[U.S.]/Iran",
        "https://x.de [Paris]",
        "[Merkel] https://x.de",
        "[Merkel https://x.de]",
        "见https://www.berlin.de[默克尔]",
        "10:30 [Paris]",
        "a @ [b]",
    ],
)
def test_what_is_beside_an_address_is_not_in_it(text: str) -> None:
    """Handles, hosts alone, slashes between names, and what follows an address in Chinese."""
    assert not inside(text)
