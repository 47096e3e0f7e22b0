"""Whole pages about own data: the package of `deploy/transforms.md` and the catalogue of `deploy/catalogue.md`.

The package is built and installed without an index; the catalogue is tried on the sample articles.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest
from pages.executed import run
from pages.snippets import snippets

ARTICLES = Path(__file__).parent.parent.parent / "enricher" / "models" / "articles" / "wikinews.jsonl"
PATH = {"PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))}
OFFLINE = {"PIP_NO_BUILD_ISOLATION": "0", "PIP_NO_INDEX": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
"""pip takes the build backend of this environment. The first is one of the variables that say the opposite of their name."""


def block(page: str, language: str) -> str:
    """The page's first block in a language."""
    return next(each.text for each in snippets() if each.page == f"deploy/{page}.md" and each.language == language)


def entry(name: str, *texts: str, **fields: Any) -> dict[str, Any]:  # noqa: ANN401  as Contentful has them
    """An entry as Contentful publishes it."""
    blocks = [{"nodeType": "paragraph", "content": [{"nodeType": "text", "value": text}]} for text in texts]
    return {"sys": {"id": name}, "fields": {"title": "", "body": {"content": blocks}, **fields}}


@pytest.mark.slow
def test_the_package_of_the_page_is_built_installed_and_run(tmp_path: Path) -> None:
    """Paragraphs become a body with the offsets of its text, an entity of the list is dropped, an entry is skipped."""
    package = tmp_path / "newsroom-transforms"
    package.mkdir()
    (package / "pyproject.toml").write_text(block("transforms", "toml"), "utf-8")
    (package / "newsroom_transforms.py").write_text(block("transforms", "python"), "utf-8")
    entries = [
        entry("one", "Angela Merkel spoke in Berlin.", "", "She left for Frankfurt."),
        entry("two", "Berlin.", internal=True),
        {"sys": {"id": "three"}},
    ]
    (tmp_path / "entries.jsonl").write_bytes(b"".join(orjson.dumps(each) + b"\n" for each in entries))
    commands = block("transforms", "sh").replace(
        "entries.jsonl", "entries.jsonl --out records.jsonl --dead-letters refused.jsonl"
    )
    run(commands, tmp_path, OFFLINE | PATH)
    (record,) = map(orjson.loads, (tmp_path / "records.jsonl").read_bytes().splitlines())
    cards = [(each["name"], each["package"], each["version"]) for each in record["transforms"]]
    assert [(name, "newsroom-transforms", "1.0.0") for name in ("contentful", "stop-list")] == cards
    text = "Angela Merkel spoke in Berlin.\n\nShe left for Frankfurt."
    found = {text[each["start"] : each["end"]]: each["label"] for each in record["entities"]}
    assert {"Angela Merkel": "PER", "Berlin": "LOC"} == found
    refused = [orjson.loads(line) for line in (tmp_path / "refused.jsonl").read_bytes().splitlines()]
    assert [("Skipped", 1), ("KeyError", 2)] == [(each["error_type"], each["offset"]) for each in refused]


@pytest.mark.slow
def test_the_catalogue_of_the_page_is_checked_and_tried(tmp_path: Path) -> None:
    """Names in full, an alias, a surname after its person, and a party that only its context would single out."""
    (tmp_path / "names.jsonl").write_text(block("catalogue", "jsonl"), "utf-8")
    chosen = [line for line in ARTICLES.read_bytes().splitlines() if b"Ahmed Mohamed" in line or b"Sea Org" in line]
    (tmp_path / "articles.jsonl").write_bytes(b"\n".join(chosen))
    run(f"exec > printed.txt\n{block('catalogue', 'sh')}", tmp_path, PATH)
    printed = (tmp_path / "printed.txt").read_text("utf-8")
    assert "4 entries with 5 names; generation 1; sha256:" in printed
    for shown in (
        "PER\tAhmed Mohamed\tmohamed (only)\tmohamed:name",
        "PER\tMohamed\tmohamed (surname)\tmohamed:surname",
        "ORG\tScientology\tchurch (only)\tchurch:alias",
        "ORG\tSea Org\tsea-org (only)\tsea-org:name",
    ):
        assert shown in printed
