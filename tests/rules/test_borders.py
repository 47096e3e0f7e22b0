"""Borders that no entity crosses."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rules.word_rule import is_border

from enricher.worker.rules.borders import has_border, joins


@pytest.mark.parametrize(
    "gap", ["", " ", "   ", "\n", "\r\n", "\r", " \r\n  ", "\u2028", "\u00a0", "\u3000", "\n ", "\u200e", " \u200b\n"]
)
def test_spaces_and_one_line_break_are_crossed(gap: str) -> None:
    """A line break may be a wrap, and nobody sees a mark of direction."""
    assert joins(gap)
    assert not has_border(gap)


@pytest.mark.parametrize(
    "gap",
    [
        "\n\n",
        "\r\n\r\n",
        "\n \t\n",
        "\n\u00a0\n",
        "\r\r",
        "\r\n\n",
        "\n\r\n",
        "\u2028\n",
        "\u2029",
        "\t",
        " \t ",
        "\v",
        "\f",
        "\x85",
        "\0",
        "\x1c",
        "\x7f",
        "a\0b",
    ],
)
def test_empty_lines_tabs_and_control_characters_are_borders(gap: str) -> None:
    """Paragraphs, cells of a table, and records."""
    assert not joins(gap)
    assert has_border(gap)


def test_an_empty_line_is_one_whatever_is_not_seen_in_it() -> None:
    """Editors leave a zero width space in empty paragraphs."""
    assert not joins("\n\u200b\n")


@given(st.text(st.sampled_from(" \n\r\t\u2028\u2029\u00a0\v\0a\u200b\x85"), max_size=6))
def test_borders_are_those_of_the_rule_written_once_more(gap: str) -> None:
    """The other implementation counts line breaks."""
    assert is_border(gap) is not joins(gap)
