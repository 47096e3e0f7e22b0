"""Smells in Python files. None is forbidden by itself; each is worth a look."""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

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
