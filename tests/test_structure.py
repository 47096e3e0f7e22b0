"""The shape of the code: what the core may import, what must be explained, and how long things may be.

Each test looks at every file and names all that break its rule. import-linter (`scripts/check`) checks which package may
import which. Every wait that the watchdog guards is in the table of its module, with its bound.
"""

from __future__ import annotations

import ast
import io
import json
import re
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path
from statistics import median, quantiles

import pytest
from support.offenders import assert_none
from support.order import LONGEST_FIRST, SHARING, SLOW

from enricher.worker.runtime import watchdog
from tools import SCRIPTS

TESTS = Path(__file__).parent
PACKAGE = Path(__file__).parent.parent / "enricher"
FILES = sorted(PACKAGE.rglob("*.py"))
CORE = sorted((PACKAGE / "worker" / "rules").glob("*.py"))
MAX_FILE_LINES, MAX_FUNCTION_LINES = 400, 60

Function = ast.FunctionDef | ast.AsyncFunctionDef


def name_of(path: Path) -> str:
    """A file's name inside the package."""
    return path.relative_to(PACKAGE).as_posix()


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """Walk all that is inside a node but its expressions, of which most of a file consists."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.expr):
            yield child
            yield from statements(child)


@dataclass(frozen=True, slots=True)
class Shape:
    """What the tests ask of a file. `functions`: the name of each, inner ones included, and its lines from `def` on."""

    lines: int
    imports: list[str]
    functions: list[tuple[str, int]]
    unexplained: list[str]


@cache
def shape_of(path: Path) -> Shape:
    """A file's; each is parsed once."""
    text = path.read_text("utf-8")
    tree = ast.parse(text)
    inside = list(statements(tree))
    functions = [node for node in inside if isinstance(node, Function)]
    return Shape(
        len(text.splitlines()),
        list(imports_of(inside)),
        [(each.name, (each.end_lineno or 0) - each.lineno + 1) for each in functions],
        list(unexplained(tree, path.stem)),
    )


def imports_of(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """The modules that a file imports. A relative import begins with its dots."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield "." * node.level + (node.module or "")


def unexplained(node: ast.Module | ast.ClassDef, name: str) -> Iterator[str]:
    """What is public and has no docstring: the module, classes, functions and methods, but nothing inside a function."""
    if not ast.get_docstring(node):
        yield name
    for child in node.body:
        if isinstance(child, ast.ClassDef | Function) and not child.name.startswith("_"):
            if isinstance(child, ast.ClassDef):
                yield from unexplained(child, f"{name}.{child.name}")
            elif not ast.get_docstring(child):
                yield f"{name}.{child.name}"


def test_tests_wait_patiently() -> None:
    """A limit of seconds fails on a busy machine: what must happen has `PATIENCE_S`, what must not is short."""
    own_limit = re.compile(
        r"\btimeout=(?:[5-9]|\d{2,})[.\d]*[,)]|\.(?:result|wait|join|flush)\((?:[5-9]|\d{2,})[.\d]*\)"
    )
    assert_none(
        f"{path.relative_to(TESTS)}: {found[0]}"
        for path in sorted(TESTS.rglob("*.py"))
        for found in own_limit.finditer(path.read_text("utf-8"))
    )


def test_the_core_imports_only_what_computes_numpy_and_our_words() -> None:
    """No clock, no thread, no input, no log, no client, no model: what decides can be tested by itself.

    Imports are absolute.
    """
    ours = ("enricher.worker.rules", "enricher.worker.heads", "enricher.worker.records", "enricher.errors")
    doing = {"asyncio", "datetime", "io", "logging", "os", "pathlib", "queue", "random", "socket", "threading", "time"}
    computing = {*sys.stdlib_module_names, "numpy"} - doing
    assert_none(
        f"{name_of(path)} imports {name}"
        for path in CORE
        for name in shape_of(path).imports
        if not name.startswith(ours) and name.split(".")[0] not in computing
    )


SHARED_WITH_THE_VERIFIER = (
    "enricher.distribution",  # its name, for messages
    "enricher.errors",
    "enricher.operate.inspector",
    "enricher.operate.verify",
    "enricher.worker.contracts",
    "enricher.worker.kafka.errors",
    "enricher.worker.kafka.metadata",
    "enricher.worker.kafka.partition_reader",
    "enricher.worker.kafka.properties",
    "enricher.worker.kafka.ranges",
    "enricher.worker.kafka.tokens",
    "enricher.worker.records",
    "enricher.worker.runtime",
    "enricher.worker.stats",
)
"""All that the verifier may be built on: clients, the reader of topics, the schemas of records and the data that moves."""


def test_the_verifier_shares_no_code_with_what_it_verifies() -> None:
    """Whatever it imports, directly or not, is on a list, and no rule, encoder, source, sink or loop is."""
    modules = {
        "enricher." + name_of(path).removesuffix(".py").removesuffix("/__init__").replace("/", "."): path
        for path in FILES
    }
    found, left = set[str](), [name for name in modules if name.startswith("enricher.operate.verify")]
    left.remove("enricher.operate.verify.command")
    while left:
        name = left.pop()
        if name in modules and name not in found:
            found.add(name)
            left += shape_of(modules[name]).imports
    assert "enricher.worker.kafka.metadata" in found
    assert_none(name for name in sorted(found) if not name.startswith(SHARED_WITH_THE_VERIFIER))


@pytest.mark.slow
def test_everything_public_is_explained() -> None:
    """Modules, which say what their job is, classes, functions and methods have a docstring."""
    assert_none(f"{name_of(path)}: {each}" for path in FILES for each in shape_of(path).unexplained)


def test_no_function_or_file_is_too_long() -> None:
    """A function fits on a screen; a file with more is two ideas. Half of the functions have ten lines at most."""
    shapes = {name_of(path): shape_of(path) for path in FILES}
    functions = [(name, *function) for name, shape in shapes.items() for function in shape.functions]
    assert_none(f"{name}: {each} has {lines} lines" for name, each, lines in functions if lines > MAX_FUNCTION_LINES)
    assert_none(f"{name} has {shape.lines} lines" for name, shape in shapes.items() if shape.lines > MAX_FILE_LINES)
    lengths = [lines for _, _, lines in functions]
    assert median(lengths) <= 10
    assert quantiles(lengths, n=10)[-1] < 30


Parsed = dict[str, ast.Module]
"""Files by their path."""


def parse(folder: Path, pattern: str = "") -> Parsed:
    """The files in which the pattern occurs."""
    texts = ((path, path.read_text("utf-8")) for path in sorted(folder.rglob("*.py")))
    return {path.relative_to(folder).as_posix(): ast.parse(text) for path, text in texts if re.search(pattern, text)}


def functions_of(parsed: Parsed) -> Iterator[tuple[str, Function]]:
    """Each with its file."""
    return ((path, node) for path, tree in parsed.items() for node in statements(tree) if isinstance(node, Function))


def repeated_file_names(parsed: Parsed) -> Iterator[str]:
    """Whoever searches for one finds another."""
    places: dict[str, list[str]] = defaultdict(list)
    for path in parsed:
        folder, _, name = path.rpartition("/")
        places[name].append(folder)
    usual = {"__init__.py", "__main__.py", "command.py"}
    return (f"{name}: {folders}" for name, folders in places.items() if len(folders) > 1 and name not in usual)


def headless_docstrings(parsed: Parsed) -> Iterator[str]:
    """Docstrings, also of fields, that begin without a verb or a noun."""
    for path, tree in parsed.items():
        for (line, _), text in docstrings_of(tree):
            if re.match(r"(?:Of|By|As|For|Where|What|None|That)\b", text):
                yield f"{path}:{line}: {text.splitlines()[0]}"


def small_helpers(parsed: Parsed) -> Iterator[str]:
    """Private functions of at most two statements that their file calls once."""
    for path, tree in parsed.items():
        names = Counter(getattr(node, "id", None) or getattr(node, "attr", None) for node in ast.walk(tree))
        for _, node in functions_of({path: tree}):
            is_small = len(node.body) - bool(ast.get_docstring(node)) <= 2
            if re.match(r"_.*(?<!__)$", node.name) and is_small and names[node.name] == 1:
                yield f"{path}:{node.lineno}: {node.name}"


def private_names_of_others(parsed: Parsed) -> Iterator[str]:
    """Lines that reach into what another object keeps to itself."""
    for path, tree in parsed.items():
        for node in ast.walk(tree):
            if not isinstance(node, ast.Attribute) or not re.fullmatch(r"_[a-z]\w*", node.attr):
                continue
            if ast.unparse(node.value) not in {"self", "cls"}:
                yield f"{path}:{node.lineno}: {ast.unparse(node)}"


@pytest.mark.slow
def test_smells_become_fewer() -> None:
    """Each has a number of places at most; who leaves fewer writes the smaller number here."""
    package, tests = parse(PACKAGE), parse(TESTS, r"(?<!\bself)(?<!\bcls)\._[a-z]")
    assert [] == list(headless_docstrings(package))
    for found, most in (
        (repeated_file_names(package), 3),
        (small_helpers(package), 201),
        (private_names_of_others(tests), 18),
    ):
        places = sorted(set(found))
        assert len(places) <= most, "\n".join(["", *places])


CEILINGS = SCRIPTS / "tools" / "ceilings.json"
REST = "the rest"
"""The interface for Python and the list of commands, which belong to no wing."""
LAYOUT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
LAYOUT |= {tokenize.ENCODING, tokenize.ENDMARKER}


def docstrings_of(tree: ast.AST) -> Iterator[tuple[tuple[int, int], str]]:
    """Places and texts of docstrings, also those of constants and fields: texts that stand alone."""
    for node in statements(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield (node.value.lineno, node.value.col_offset), node.value.value


def code_tokens(text: str) -> int:
    """The tokens of a module's code."""
    explanations = dict(docstrings_of(ast.parse(text)))
    tokens = tokenize.tokenize(io.BytesIO(text.encode()).readline)
    return sum(token.type not in LAYOUT and token.start not in explanations for token in tokens)


@pytest.mark.slow
def test_no_part_of_the_package_grows() -> None:
    """A new promise names the promise that it replaces; who makes a part smaller lowers its ceiling."""
    most: dict[str, int] = json.loads(CEILINGS.read_text("utf-8"))
    found = dict.fromkeys(most, 0)
    for path in FILES:
        first = path.relative_to(PACKAGE).parts[0]
        found[first if first in most else REST] += code_tokens(path.read_text("utf-8"))
    assert_none(
        f"{part} has {tokens:,} tokens of code, at most {most[part]:,} are allowed"
        for part, tokens in found.items()
        if tokens > most[part]
    )


def test_explanations_and_layout_are_no_code() -> None:
    """Or the ceilings would reward leaving them out, and packing lines."""
    packed = "def double(x: int) -> int: return 2 * x"
    explained = (
        '"""Arithmetic."""\n\n\ndef double(x: int) -> int:\n    """Twice x."""\n    # as asked\n    return 2 * x\n'
    )
    assert 14 == code_tokens(packed) == code_tokens(explained)
    assert 3 == code_tokens('name = "text"\n')


def test_the_lists_of_slow_tests_name_files_that_exist() -> None:
    """A file that moved would be quick, or last, without a word."""
    tests = Path(__file__).parent
    sharing = chain.from_iterable(SHARING.values())
    assert_none(name for name in (*LONGEST_FIRST, *SLOW, *sharing) if not (tests / name).is_file())


ROW = re.compile(r"^    (\S.*?) {2,}(\S.*)$", re.MULTILINE)
GUARD = re.compile(r"\b_?guard\(\s*\"([^\"]+)\"")


def bounds(table: str) -> dict[str, str]:
    """The bound of each guard in the table."""
    return {label: bound for labels, bound in ROW.findall(table) for label in labels.split(", ")}


def test_the_table_has_every_guard_and_no_other() -> None:
    """A new guard needs a row; the row of one that is gone goes."""
    others = (path.read_text("utf-8") for path in FILES if path.name != "watchdog.py")
    guards = {label for text in others for label in GUARD.findall(text)}
    assert guards == set(bounds(watchdog.__doc__ or ""))
