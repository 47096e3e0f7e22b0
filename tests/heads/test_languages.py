"""Languages of articles, as people and detectors spell them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enricher.worker.heads.languages import Languages, canonical_tag, loggable_tag


@pytest.mark.parametrize(
    ("task", "spellings"),
    [
        ("en", "en EN En en-US en_GB en-Latn-US eng ENG eng_Latn __label__en __label__eng_Latn"),
        ("de", "de ger deu deu_Latn de_AT __label__de"),
        ("zh", "zh zho chi cmn zho_Hans cmn_Hans zh-TW zh_cn __label__zh"),
        ("zh-hant", "zh-Hant zho_Hant cmn_Hant_TW"),
        ("sr", "sr srp sr-Latn srp_Cyrl sh hbs"),
        ("ar", "ar ara arb arb_Arab"),
        ("he", "he heb iw heb_Hebr"),
        ("yue", "yue yue_Hant"),
        ("fil", "fil tl tgl tgl_Latn fil_Latn"),
    ],
)
def test_a_task_takes_its_language_however_it_is_spelled(task: str, spellings: str) -> None:
    """Two or three letters, a script or a region, either case, with a detector's prefix."""
    for spelling in spellings.split():
        assert Languages(frozenset({task})).include(spelling), spelling


@pytest.mark.parametrize("language", ["English", "english", "en glish", "enm", "de", "x-en", "", "__label__"])
def test_no_task_takes_a_name_or_another_language(language: str) -> None:
    """Names are ambiguous and come in every language; `enm` is Middle English."""
    assert not Languages(frozenset({"en"})).include(language)


def test_a_script_or_region_of_a_task_is_not_the_whole_language() -> None:
    """A task for traditional Chinese takes no article in simplified Chinese, or without a script."""
    assert not any(Languages(frozenset({"zh-hant"})).include(each) for each in ("zho_Hans", "cmn", "zh"))


@given(st.from_regex(r"[A-Za-z]{2,3}([-_][A-Za-z]{2,4}){0,2}", fullmatch=True))
def test_a_canonical_tag_stays_as_it_is(tag: str) -> None:
    """No alias leads to another one, so a task's name and an article's language are compared in one form."""
    assert canonical_tag(tag) == canonical_tag(canonical_tag(tag)) == canonical_tag(tag.upper())


@pytest.mark.parametrize("language", ["en", " pt-BR ", "eng_Latn", "__label__eng_Latn", "English"])
def test_a_tag_may_be_logged(language: str) -> None:
    """It is short, and of letters, digits and hyphens."""
    assert language.strip() == loggable_tag(language)


@given(st.one_of(st.text(max_size=256), st.from_regex(r"[a-z]{36,256}", fullmatch=True)))
def test_no_other_text_is_logged(text: str) -> None:
    """What is logged has at most 44 characters, none of which ends a line, a word or a quotation."""
    tag = loggable_tag(text)
    assert tag is None or (len(tag) <= 44 and tag.isascii() and all(each.isalnum() or each in "-_" for each in tag))


@pytest.mark.parametrize("language", ["", "the body of an article", "a\nb", "e'n", "x" * 36, "_en", "日本語", "ﬁ"])
def test_a_text_that_is_no_tag_is_not_logged(language: str) -> None:
    """It may be anything, since articles come from strangers."""
    assert loggable_tag(language) is None
