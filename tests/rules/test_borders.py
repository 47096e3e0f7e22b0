"""Borders that no entity crosses."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rules.word_rule import is_border

from enricher.worker.rules.borders import Addresses, has_border, joins


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


class Counting(str):
    """A text that counts how many of its characters are taken out of it."""

    taken = 0

    def __getitem__(self, key: object) -> str:
        """The same."""
        piece = super().__getitem__(key)  # type: ignore[index]
        Counting.taken += len(piece)
        return piece


@pytest.mark.parametrize("unit", ["a@", "a.", "www.", "://", "a/", "@a.b", "mailto:", "a.bc/"])
def test_a_text_without_white_space_is_read_once(unit: str) -> None:
    """Asking for every place in it takes each of its characters out a bounded number of times."""
    text = Counting(unit * (10_000 // len(unit)))
    Counting.taken = 0
    addresses = Addresses(text, len(text))
    for place in range(len(text)):
        addresses.contain(place, place + 1)
    assert Counting.taken < 10 * len(text)
