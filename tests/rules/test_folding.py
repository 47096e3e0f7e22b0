"""Folding of names: what meets after which step, and what never does."""

from __future__ import annotations

import unicodedata
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enricher.worker.rules.folding import fold, fold_loosely, split_legal_form, without_possessive


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Angela  Merkel\n", "ANGELA MERKEL"),
        ("L\u2019Or\u00e9al", "L'OR\u00c9AL"),
        ("O\u00b4Brien", "O`Brien"),
        ("Jean\u2013Luc", "jean\u2010luc"),
        ("\uff21\uff22\uff23\u3000News", "abc news"),
        ("Stra\u00dfe", "STRASSE"),
        ("Dai\u00adly\u200b Mail\ufeff", "daily mail"),
        ("\u202b\u0645\u0631\u064a\u0645\u202c", "\u0645\u0631\u064a\u0645"),
        ("\u00e9", "e\u0301"),
    ],
)
def test_the_first_step_is_form_case_space_apostrophes_and_dashes(one: str, other: str) -> None:
    """These are one name in two spellings."""
    assert fold(one) == fold(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [("Müller", "Muller"), ("Łódź", "Lodz"), ("Ørsted", "orsted"), ("İstanbul", "istanbul"), ("مُحَمَّد", "محمد")],
)
def test_diacritics_are_the_second_step(one: str, other: str) -> None:
    """They differ after the first one."""
    assert fold(one) != fold(other)
    assert fold_loosely(fold(one)) == fold_loosely(fold(other))


@pytest.mark.parametrize(
    ("one", "other"),
    [("Germans", "German"), ("U.S.", "US"), ("Müller", "Mueller"), ("कि", "कु"), ("AT&T", "AT & T"), ("が", "か")],
)
def test_no_step_folds_these(one: str, other: str) -> None:
    """Inflection, punctuation, transliteration, and marks that are letters of their script."""
    assert fold_loosely(fold(one)) != fold_loosely(fold(other))


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("apple inc.", ("apple", "inc")),
        ("apple, incorporated", ("apple", "inc")),
        ("acme gmbh & co. kg", ("acme", "gmbh co kg")),
        ("nestle s.a.", ("nestle", "sa")),
        ("maersk a/s", ("maersk", "as")),
        ("co", ("co", "")),
        ("inc. co.", ("inc. co.", "")),
        ("apple", ("apple", "")),
        ("incorporated apple", ("incorporated apple", "")),
    ],
)
def test_a_legal_form_is_at_the_end_and_never_all(name: str, split: tuple[str, str]) -> None:
    """A name of forms alone stays as it is."""
    assert split == split_legal_form(name)


def test_possessives_end_with_an_apostrophe() -> None:
    """A plural stays."""
    shown = {"apple's": "apple", "reuters'": "reuters", "reuters": "reuters", "rock 'n' roll'": "rock 'n' roll'"}
    assert list(shown.values()) == [without_possessive(each) for each in shown]


@given(st.text(max_size=40))
def test_folding_is_stable_and_only_the_second_step_adds_to_the_first(text: str) -> None:
    """Texts that are equal after the first step are equal after the second; ASCII takes a shorter way to the same text."""
    folded = fold(text)
    assert fold_loosely(folded) == fold_loosely(fold(unicodedata.normalize("NFC", text)))
    assert " ".join(folded.split()) == folded
    assert fold("é " + text) == fold("é") + (" " + folded if folded else "")


def test_a_run_of_marks_takes_no_time_with_its_square(monkeypatch: pytest.MonkeyPatch) -> None:
    """Normalizing sorts it by insertion: a million marks of an article take 760 s, in which no other thread runs."""
    lengths, normalize = list[int](), unicodedata.normalize

    def noted(form: Literal["NFC", "NFD", "NFKC", "NFKD"], text: str) -> str:
        lengths.append(len(text))
        return normalize(form, text)

    monkeypatch.setattr(unicodedata, "normalize", noted)
    fold_loosely(fold("a" + "\u0301\u0323" * 5_000))
    assert max(lengths) <= 2_000
