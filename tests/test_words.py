"""One word for each thing: the words that were replaced do not come back. CHANGELOG.md may name them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

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
    r"\b(?-i:InFlight)\b": "Ticket",
    r"\brooms\b": "package, module, dependencies",
    r"\blanes?\b": "concurrency, worker pool, thread",
    r"\btally\b": "counters",
    r"\b(?-i:Distribution)\b": "Histogram",
    r"\b(bell|latch|hush)\b": "wakeup, stop event",
    r"\b(gathered-fp32|rounded-fp32|padded-bf16)\b": "packed-fp32, openvino-fp32, openvino-bf16",
    r"\bkafka[./]border\b": "kafka.errors, the error mapping",
    r"\bwish(es|ed)?\b": "request, expectation",
    r"\bwatermarks?\b": "low and high offset",
    r"\banew\b": "again",
    r"\bmended\b": "fixed, repaired",
    r"\bforms? of (a|the) model\b": "variant",
    r"\bin the place of\b": "instead of",
    r"\b(nemesis|showcase|soaking)\b": "chaos, demo, soak",
}
"""Pattern -> what to write instead."""


def _texts() -> list[tuple[str, str]]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False).stdout
    if not listed:
        pytest.skip("not a git checkout: nothing says which files are ours")
    names = [name for name in listed.decode().split("\0") if name and not name.startswith(NOT_OURS)]
    paths = [(name, ROOT / name) for name in names if Path(name).suffix in TEXT_SUFFIXES]
    return [(name, path.read_text("utf-8", errors="replace")) for name, path in paths if path.is_file()]


def test_replaced_words_do_not_come_back() -> None:
    """In code, settings, metrics, logs and documentation."""
    patterns = [(re.compile(pattern, re.IGNORECASE), better) for pattern, better in REPLACED.items()]
    found = [
        f"{name}:{number}: {match[0]!r}, write: {better}"
        for name, text in _texts()
        for pattern, better in patterns
        if pattern.search(text)
        for number, line in enumerate(text.splitlines(), 1)
        if (match := pattern.search(line))
    ]
    assert found == []


@pytest.mark.parametrize("text", ["the lanes", "a tally", "kafka/border.py", "In the Rooms", "read anew"])
def test_the_patterns_find_what_they_are_for(text: str) -> None:
    """A check that cannot fail would be none."""
    assert any(re.search(pattern, text, re.IGNORECASE) for pattern in REPLACED)
