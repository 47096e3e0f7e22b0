"""One name for all the ways in which an article may write it, for counts and filters. Pure."""

from __future__ import annotations

import unicodedata


def name_of(text: str) -> str:
    """The text in NFC, without format characters, and with one space for any run of white space; empty if nothing is left.

    Line breaks, no-break spaces, soft hyphens and zero-width spaces come with the layout of a page; they are no part of a
    name.
    """
    if not text.isascii():
        shown = "".join(each for each in text if unicodedata.category(each) != "Cf")
        text = unicodedata.normalize("NFC", shown)
    return " ".join(text.split())
