"""The page that `scripts/structure` prints, and the figures that may only become smaller."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from tools import ROOT
from tools.structure import ceilings, smells

FIGURES = Path(__file__).with_name("figures.json")
_PARTS = ("enricher/worker", "enricher/workshop", "enricher/operate", "enricher", "scripts", "tests")
_SMELLS: Sequence[tuple[str, str, Callable[[smells.Parsed], list[str]]]] = (
    ("file names that occur more than once", "enricher", smells.repeated_file_names),
    ("docstrings without a verb or a noun", "enricher", smells.headless_docstrings),
    ("functions named by a participle", "enricher", smells.participles),
    ("small helpers that are called once", "enricher", smells.small_helpers),
    ("questions for the kind of something", "enricher", smells.questions_of_kind),
    ("private names of others in tests", "tests", smells.private_names_of_others),
)


def sizes() -> dict[str, tuple[int, int]]:
    """Lines and files of Python in each part; `enricher` is the whole package."""
    return {part: _size(part) for part in _PARTS}


def offenders() -> dict[str, list[str]]:
    """The places of each smell."""
    parsed = {
        "enricher": smells.parse((ROOT / "enricher").rglob("*.py"), ROOT),
        "tests": smells.parse((ROOT / "tests").rglob("*.py"), ROOT, smells.REACHES_IN),
    }
    return {name: find(parsed[part]) for name, part, find in _SMELLS}


def accepted() -> dict[str, int]:
    figures: dict[str, int] = json.loads(FIGURES.read_text("utf-8"))
    return figures


def accept(found: dict[str, list[str]]) -> None:
    """Write the figures of today, to be committed."""
    FIGURES.write_text(json.dumps({name: len(places) for name, places in found.items()}, indent=2) + "\n", "utf-8")


def page(found: dict[str, list[str]], *, with_places: bool) -> str:
    """The report as Markdown. `with_places`: every offender by name."""
    lines = ["| part | lines | files |", "|---|---|---|"]
    lines += [f"| `{part}` | {lines_of:,} | {files} |" for part, (lines_of, files) in sizes().items()]
    most = ceilings.ceilings() if ceilings.CEILINGS.is_file() else {}
    lines += ["", "| part of the package | tokens of code | ceiling |", "|---|---|---|"]
    lines += [f"| {part} | {tokens:,} | {most.get(part, 0):,} |" for part, tokens in ceilings.tokens_by_part().items()]
    lines += ["", "| smell | today | committed |", "|---|---|---|"]
    committed = accepted() if FIGURES.is_file() else {}
    lines += [f"| {name} | {len(places)} | {committed.get(name, '')} |" for name, places in found.items()]
    if with_places:
        for name, places in found.items():
            lines += ["", f"## {name[0].upper()}{name[1:]}", "", *(f"- {place}" for place in places)]
    return "\n".join(lines)


def _size(part: str) -> tuple[int, int]:
    texts = [path.read_text("utf-8") for path in (ROOT / part).rglob("*.py")]
    return sum(text.count("\n") for text in texts), len(texts)
