"""The size of each part of the package in tokens of code, and the ceilings that it may not exceed.

Comments, docstrings and layout do not count, so packing lines or leaving out explanations gains nothing.
"""

from __future__ import annotations

import ast
import io
import json
import tokenize
from collections.abc import Iterable, Mapping
from pathlib import Path

from tools import ROOT

CEILINGS = Path(__file__).with_name("ceilings.json")
PARTS = ("worker", "workshop", "operate", "indexing")
REST = "the rest"
"""The interface for Python and the list of commands, which belong to no wing."""
STEP_TOKENS = 1_000
"""Ceilings are rounded up to this, so that mending a defect is no matter of ceilings."""
_LAYOUT = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING, tokenize.ENDMARKER,
}  # fmt: skip


def code_tokens(text: str) -> int:
    """The tokens of a module's code."""
    docstrings = set(_docstrings(ast.parse(text)))
    tokens = tokenize.tokenize(io.BytesIO(text.encode()).readline)
    return sum(token.type not in _LAYOUT and token.start not in docstrings for token in tokens)


def tokens_by_part() -> dict[str, int]:
    """The tokens of code in each part of the package."""
    found = dict.fromkeys((*PARTS, REST), 0)
    package = ROOT / "enricher"
    for path in package.rglob("*.py"):
        first = path.relative_to(package).parts[0]
        found[first if first in PARTS else REST] += code_tokens(path.read_text("utf-8"))
    return found


def ceilings() -> dict[str, int]:
    """The most tokens that each part may have."""
    read: dict[str, int] = json.loads(CEILINGS.read_text("utf-8"))
    return read


def lower(found: Mapping[str, int]) -> None:
    """Write the ceilings of today, to be committed. None becomes higher: that takes an editor, and a reason."""
    before = ceilings() if CEILINGS.is_file() else {}
    rounded = {part: -(-tokens // STEP_TOKENS) * STEP_TOKENS for part, tokens in found.items()}
    lowest = {part: min(most, before.get(part, most)) for part, most in rounded.items()}
    CEILINGS.write_text(json.dumps(lowest, indent=2) + "\n", "utf-8")


def _docstrings(tree: ast.AST) -> Iterable[tuple[int, int]]:
    """The positions of docstrings, also of those of constants and fields: texts that stand alone."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.value.lineno, node.value.col_offset
