"""`looks_like_html`: HTML is recognised as such, and text with angle brackets is left alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from support.texts import any_text

from enricher.worker.articles.html_rule import looks_like_html

HTML = [
    "<p>Ana met Emma.</p>", " \n<div class='a'>text", "<!-- wp:paragraph -->\nText", "<!DOCTYPE html>\n<html>", "One<p>two",
    "One<br>two", "One<BR/>two", "Ana met <b>Emma</b>.", 'He <a href="x"\n>said</a > so', "<H1>Title", "a <i>b</b> c</i>",
    "<img src=a>Text",
]  # fmt: skip
TEXT = [
    "", "Ana met Emma.", "AT&amp;T &lt;p&gt;", "3 < 4 and 5 > 2", "<Reuters> - Oslo", "a <- b -> c <3", "Use the <b> tag.",
    "</b> closes <b>", "Write to <ana@example.org> or <https://x.example/a>", "List<String> a; Map<a, b>", "<", "<p", "<pre",
    "<<a>>", "if a<b and c>d", "a </b> b </b>", "<?xml version='1.0'?><doc>a</doc>",
]  # fmt: skip


@pytest.mark.parametrize("body", HTML)
def test_html_is_recognised(body: str) -> None:
    """By what it begins with, by a paragraph or line break, or by an element that opens and closes."""
    assert looks_like_html(body)


@pytest.mark.parametrize("body", TEXT)
def test_text_is_left_alone(body: str) -> None:
    """Though it has angle brackets, addresses, code or character references."""
    assert not looks_like_html(body)


@given(text=any_text())
def test_text_without_angle_brackets_is_never_html(text: str) -> None:
    """Nearly all text; it costs one look."""
    assert not looks_like_html(text.replace("<", ""))


@pytest.mark.parametrize("piece", ["<", "<a ", "<a", "</a>", "<b>", "<a" + "a" * 1000, "< a>", "<!", "<!--"])
def test_hostile_text_is_answered(piece: str) -> None:
    """A million characters of it: an expression that tries each beginning with each end would take hours."""
    assert looks_like_html(" x" + piece * (1_000_000 // len(piece))) is False
    assert looks_like_html(piece * (1_000_000 // len(piece)) + "<br>")
