"""One word for each thing: the words that were replaced do not come back. CHANGELOG.md may name them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from support.offenders import assert_none

ROOT = Path(__file__).parents[1]
TEXT_SUFFIXES = {".py", ".md", ".toml", ".sh", ".yaml", ".yml", ".tpl", ".txt", ".js", ".html", ".css", ""}
NOT_OURS = (
    "CHANGELOG.md",
    "LICENSE",
    "enricher/models/articles/",
    "scripts/locked/",
    "tests/data/",
    "tests/deploy/schemas/",
    "tests/test_words.py",
)
"""Texts of others, and those that name the words on purpose."""

REPLACED = {
    r"way of the data": "data flow",
    r"(?-i:InFlight)": "Ticket",
    r"rooms": "package, module, dependencies",
    r"tally": "counters",
    r"(?-i:Distribution)": "Histogram",
    r"(bell|latch|hush)": "wakeup, stop event",
    r"(gathered-fp32|rounded-fp32|padded-bf16)": "packed-fp32, openvino-fp32, openvino-bf16",
    r"kafka[./]border": "kafka.errors, the error mapping",
    r"wish(es|ed)?": "request, expectation",
    r"watermarks?": "low and high offset",
    r"anew": "again",
    r"mended": "fixed, repaired",
    r"forms? of (a|the) model": "variant",
    r"in the place of": "instead of",
    r"(nemesis|showcase|soaking)": "chaos, demo, soak",
}
"""Pattern of whole words -> what to write instead."""
ANY = re.compile(rf"\b(?:{'|'.join(REPLACED)})\b", re.IGNORECASE)


def _texts() -> list[tuple[str, str]]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False).stdout
    if not listed:
        pytest.skip("not a git checkout: nothing says which files are ours")
    names = [name for name in listed.decode().split("\0") if name and not name.startswith(NOT_OURS)]
    paths = [(name, ROOT / name) for name in names if Path(name).suffix in TEXT_SUFFIXES]
    return [(name, path.read_text("utf-8", errors="replace")) for name, path in paths if path.is_file()]


def instead_of(word: str) -> str:
    """What to write instead of a word that one of the patterns finds."""
    return next(better for pattern, better in REPLACED.items() if re.fullmatch(pattern, word, re.IGNORECASE))


@pytest.mark.slow
def test_replaced_words_do_not_come_back() -> None:
    """In code, settings, metrics, logs and documentation."""
    assert_none(
        f"{name}:{text.count(chr(10), 0, match.start()) + 1}: {match[0]!r}, write: {instead_of(match[0])}"
        for name, text in _texts()
        for match in ANY.finditer(text)
    )


@pytest.mark.parametrize("text", ["a tally", "kafka/border.py", "In the Rooms", "read anew"])
def test_the_patterns_find_what_they_are_for(text: str) -> None:
    """A check that cannot fail would be none."""
    match = ANY.search(text)
    assert match
    assert instead_of(match[0])
