"""Borders that no entity crosses."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rules.building import Counting
from rules.word_rule import is_border

from enricher.worker.rules.borders import Addresses, has_border, joins


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


@pytest.mark.parametrize("unit", ["a@", "a.", "www.", "://", "a/", "@a.b", "mailto:", "a.bc/"])
def test_a_text_without_white_space_is_read_once(unit: str) -> None:
    """Asking for every place in it takes each of its characters out a bounded number of times."""
    text = Counting(unit * (10_000 // len(unit)))
    Counting.taken = 0
    addresses = Addresses(text, len(text))
    for place in range(len(text)):
        addresses.contain(place, place + 1)
    assert Counting.taken < 10 * len(text)
