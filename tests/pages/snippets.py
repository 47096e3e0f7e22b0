"""The commands and snippets in the Markdown pages, and what becomes of each.

    PYTHONPATH=scripts:tests:. .venv/bin/python tests/pages/snippets.py    # lists them

Above a block that no test of this folder executes stands one of these comments, which readers do not see:

    <!-- not run: why -->
    <!-- run by tests/deploy/test_monitoring.py -->
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from test_docs import ROOT, name_of, pages

EXECUTED = {"sh", "python", "json", "jsonl", "toml", "yaml"}
"""The languages of blocks that the tests of this folder execute or read, unless a mark says otherwise."""
_FENCE = re.compile(
    r"(?:^ *<!-- (?P<mark>(?:(?!-->).)*) -->\n)?^(?P<indent> *)```(?P<language>[^\n]*)\n(?P<text>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
_TEST = re.compile(r"run by (tests/\S+\.py)")
_REASON = re.compile(r"not run: \S.*")


@dataclass(frozen=True, slots=True)
class Snippet:
    """A fenced block of a page."""

    page: str
    line: int
    language: str
    text: str
    mark: str

    @property
    def place(self) -> str:
        """Page and line."""
        return f"{self.page}:{self.line}"

    @property
    def executed(self) -> bool:
        """It is executed by a test of this folder."""
        return not self.mark and self.language in EXECUTED

    @property
    def objection(self) -> str:
        """What is wrong with its mark; empty if it is executed, or rightly marked."""
        if self.executed or _REASON.fullmatch(self.mark):
            return ""
        if not (test := _TEST.fullmatch(self.mark)):
            return f"'{self.language}' is not executed: say why above it, <!-- not run: ... -->"
        path = ROOT / test[1]
        reads_the_page = path.is_file() and Path(self.page).name in path.read_text("utf-8")
        return "" if reads_the_page else f"{test[1]} does not read this page"


def snippets() -> Iterator[Snippet]:
    """Those of every page but the change log."""
    for page in pages():
        text = page.read_text("utf-8")
        for block in _FENCE.finditer(text):
            line = text.count("\n", 0, block.start("language")) + 1
            yield Snippet(name_of(page), line, block["language"], block["text"], block["mark"] or "")


if __name__ == "__main__":
    for each in snippets():
        sys.stdout.write(f"{each.place:45} {each.language:7} {each.mark or 'executed'}\n")
