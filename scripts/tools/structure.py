"""`scripts/structure`: ceilings and smells, which may only become fewer: tests/test_structure.py compares."""

from __future__ import annotations

import argparse
import ast
import io
import json
import re
import tokenize
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from tools import ROOT

Function = ast.FunctionDef | ast.AsyncFunctionDef
Parsed = dict[str, ast.Module]
"""Files by their path in the repository."""
_Named = ast.Name | ast.Attribute

_HEADLESS = re.compile(r"(?:Of|By|As|For|Where|What|None|That)\b")
_PARTICIPLE = re.compile(r"_*(?:\w{2,}ed|told|said|kept|made|found|sent|seen|written|taken|given|shown|held|left)")
_NO_PARTICIPLES = {"embed", "feed", "need", "proceed", "seed", "shed", "speed"}
REACHES_IN = r"(?<!\bself)(?<!\bcls)\._[a-z]"
"""Occurs in every file in which `private_names_of_others` finds something; the others need not be parsed."""
_USUAL_NAMES = {"__init__.py", "__main__.py", "command.py"}


def parse(files: Iterable[Path], root: Path, pattern: str = "") -> Parsed:
    """The files in which the pattern occurs."""
    texts = ((path, path.read_text("utf-8")) for path in sorted(files))
    return {path.relative_to(root).as_posix(): ast.parse(text) for path, text in texts if re.search(pattern, text)}


def repeated_file_names(parsed: Parsed) -> list[str]:
    """Names that several files have: whoever searches for one finds another."""
    places: dict[str, list[str]] = defaultdict(list)
    for path in parsed:
        folder, _, name = path.rpartition("/")
        places[name].append(folder)
    return [
        f"{name}: {', '.join(folders)}"
        for name, folders in sorted(places.items())
        if len(folders) > 1 and name not in _USUAL_NAMES
    ]


def headless_docstrings(parsed: Parsed) -> list[str]:
    """Docstrings, also of fields, that begin without a verb or a noun."""
    return [
        f"{path}:{node.lineno}: {str(node.value.value).splitlines()[0][:80]}"
        for path, tree in parsed.items()
        for node in statements(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        if _HEADLESS.match(node.value.value)
    ]


def participles(parsed: Parsed) -> list[str]:
    """Functions that are named by a participle alone: `told` says neither what is done nor to what."""
    return [
        f"{path}:{node.lineno}: {node.name}"
        for path, node in _functions(parsed)
        if _PARTICIPLE.fullmatch(node.name) and node.name.strip("_") not in _NO_PARTICIPLES and "_" not in node.name[1:]
        if not any("property" in ast.dump(each) for each in node.decorator_list)
    ]


def small_helpers(parsed: Parsed) -> list[str]:
    """Private functions of at most two statements that their file calls once."""
    found = []
    for path, tree in parsed.items():
        names = Counter(
            node.id if isinstance(node, ast.Name) else node.attr for node in ast.walk(tree) if isinstance(node, _Named)
        )
        for _, node in _functions({path: tree}):
            statements = len(node.body) - bool(ast.get_docstring(node))
            if node.name.startswith("_") and not node.name.endswith("__") and statements <= 2 and names[node.name] == 1:
                found.append(f"{path}:{node.lineno}: {node.name}")
    return found


def questions_of_kind(parsed: Parsed) -> list[str]:
    """Comparisons with `.kind`: what differs by kind belongs together, in one object for each."""
    return [
        f"{path}:{node.lineno}: {ast.unparse(node)[:80]}"
        for path, tree in parsed.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Compare)
        if any(isinstance(each, ast.Attribute) and each.attr == "kind" for each in (node.left, *node.comparators))
    ]


def private_names_of_others(parsed: Parsed) -> list[str]:
    """Lines that reach into what another object keeps to itself."""
    return sorted(
        {
            f"{path}:{node.lineno}: {ast.unparse(node)[:80]}"
            for path, tree in parsed.items()
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute) and re.fullmatch(r"_[a-z]\w*", node.attr)
            if not (isinstance(node.value, ast.Name) and node.value.id in {"self", "cls"})
        }
    )


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """Walk all that is inside a node but its expressions, of which most of a file consists."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.expr):
            yield child
            yield from statements(child)


def _functions(parsed: Parsed) -> Iterator[tuple[str, Function]]:
    return ((path, node) for path, tree in parsed.items() for node in statements(tree) if isinstance(node, Function))


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


def _docstrings(tree: ast.AST) -> Iterable[tuple[int, int]]:
    """The positions of docstrings, also of those of constants and fields: texts that stand alone."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.value.lineno, node.value.col_offset


FIGURES = Path(__file__).with_name("figures.json")
_SMELLS: Sequence[tuple[str, str, Callable[[Parsed], list[str]]]] = (
    ("file names that occur more than once", "enricher", repeated_file_names),
    ("docstrings without a verb or a noun", "enricher", headless_docstrings),
    ("functions named by a participle", "enricher", participles),
    ("small helpers that are called once", "enricher", small_helpers),
    ("questions for the kind of something", "enricher", questions_of_kind),
    ("private names of others in tests", "tests", private_names_of_others),
)


def offenders() -> dict[str, list[str]]:
    """The places of each smell."""
    parsed = {
        "enricher": parse((ROOT / "enricher").rglob("*.py"), ROOT),
        "tests": parse((ROOT / "tests").rglob("*.py"), ROOT, REACHES_IN),
    }
    return {name: find(parsed[part]) for name, part, find in _SMELLS}


def committed(path: Path) -> dict[str, int]:
    """How many there may be: of each smell in `FIGURES`, of the tokens of each part in `CEILINGS`."""
    figures: dict[str, int] = json.loads(path.read_text("utf-8"))
    return figures


def accept(found: Mapping[str, list[str]], tokens: Mapping[str, int]) -> None:
    """Write the figures of today, to be committed. No ceiling becomes higher: that takes an editor, and a reason."""
    before = committed(CEILINGS)
    rounded = {part: -(-count // STEP_TOKENS) * STEP_TOKENS for part, count in tokens.items()}
    lowest = {part: min(most, before[part]) for part, most in rounded.items()}
    smells = {name: len(places) for name, places in found.items()}
    for path, figures in ((CEILINGS, lowest), (FIGURES, smells)):
        path.write_text(json.dumps(figures, indent=2) + "\n", "utf-8")


def main() -> None:
    """Print what there is, and how much of it is committed."""
    parser = argparse.ArgumentParser(
        "scripts/structure", description="Tokens of code, and smells that may only become fewer."
    )
    parser.add_argument("--places", action="store_true", help="name every place")
    parser.add_argument(
        "--accept", action="store_true", help="write today's figures, which tests/test_structure.py compares"
    )
    arguments = parser.parse_args()
    found, tokens = offenders(), tokens_by_part()
    if arguments.accept:
        accept(found, tokens)
    for part, most in committed(CEILINGS).items():
        print(f"tokens of code in {part}: {tokens[part]:,}, at most {most:,}")
    for name, most in committed(FIGURES).items():
        print(f"{name}: {len(found[name])}, at most {most}")
        if arguments.places:
            print(*(f"    {place}" for place in found[name]), sep="\n")


if __name__ == "__main__":
    main()
