"""Words as a newspaper's annotator would mark them, language by language; a bar is a border with no white space."""

from __future__ import annotations

import pytest
from rules.test_word_rule import found

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
    "what is not known": "of\ue000ce \U0001d4d0ngela Zoe\u0301|, a\u0378b",
}  # fmt: skip
"""A format character outside of letters is in no word: it stands before one here, and is taken off."""


@pytest.mark.parametrize("language", CASES)
def test_words_are_those_that_people_mark(language: str) -> None:
    """The text is cut at its bars and white space, and nowhere else."""
    expected = [
        part.lstrip("\u200b\u200d\u200e\u2068\u2069\ufeff") for part in CASES[language].replace("|", " ").split()
    ]
    text = CASES[language].replace("|", "")
    assert expected == [text[start:end] for start, end in found(text)]
