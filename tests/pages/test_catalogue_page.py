"""The catalogue in `deploy/catalogue.md` is checked and tried as the page says, on the sample articles."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from pages.shell import run
from pages.snippets import snippets

PAGE = "deploy/catalogue.md"
ARTICLES = Path(__file__).parent.parent.parent / "enricher" / "models" / "articles" / "wikinews.jsonl"


def block(language: str) -> str:
    """The page's first block in a language."""
    return next(each.text for each in snippets() if each.page == PAGE and each.language == language)


@pytest.mark.slow
def test_the_catalogue_of_the_page_is_checked_and_tried(tmp_path: Path) -> None:
    """Names in full, an alias, a surname after its person, and a party that only its context would single out."""
    (tmp_path / "names.jsonl").write_text(block("jsonl"), "utf-8")
    chosen = [line for line in ARTICLES.read_bytes().splitlines() if b"Ahmed Mohamed" in line or b"Sea Org" in line]
    (tmp_path / "articles.jsonl").write_bytes(b"\n".join(chosen))
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    run(["/bin/bash", "-eu"], f"exec > printed.txt\n{block('sh')}", tmp_path, {"PATH": path})
    printed = (tmp_path / "printed.txt").read_text("utf-8")
    assert "4 entries with 5 names; generation 1; sha256:" in printed
    for shown in (
        "PER\tAhmed Mohamed\tmohamed (only)\tmohamed:name",
        "PER\tMohamed\tmohamed (surname)\tmohamed:surname",
        "ORG\tScientology\tchurch (only)\tchurch:alias",
        "ORG\tSea Org\tsea-org (only)\tsea-org:name",
    ):
        assert shown in printed
