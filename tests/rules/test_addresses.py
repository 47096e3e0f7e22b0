"""URLs and e-mail addresses: what is recognised, and that hostile texts are read once."""

from __future__ import annotations

import pytest

from enricher.worker.rules.borders import Addresses


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
