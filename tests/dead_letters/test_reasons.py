"""Every message of a dead letter has a reason, every reason is explained, and strangers make no more of them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.properties import any_text

from enricher.worker.records import reason_of
from enricher.worker.records.reasons import BROKER_REFUSES, MODEL_FAILS, OTHER, OWN_ANSWER, OWN_CODE_FAILS, REASONS

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "deploy" / "dead-letters.md"
MESSAGE_AT = {"InvalidArticle": 0, "DeadLetter": 2, "WindowFailure": 2}
"""The argument that is the message."""
OF_OTHERS = {"str(error)", "str(trouble)", "str(error)[:MESSAGE_CHARS]", "failure.message", "refusal.message"}
"""Messages that were made elsewhere: by us in a place that is looked at, by ONNX Runtime, or by the broker."""


class Messages:
    """The messages of dead letters in one module, as templates: `...` stands for each value."""

    def __init__(self, path: Path, constants: dict[str, ast.expr]) -> None:
        self._tree = ast.parse(path.read_text("utf-8"))
        self._functions = [node for node in ast.walk(self._tree) if isinstance(node, ast.FunctionDef)]
        self._constants = constants

    def all(self) -> Iterator[str]:
        """Each message that is made here; what cannot be resolved is in angle brackets."""
        for node in ast.walk(self._tree):
            match node:
                case ast.Call(func=ast.Name(id=name), args=args) if len(args) > MESSAGE_AT.get(name, 99):
                    message = args[MESSAGE_AT[name]]
                    if ast.unparse(message) not in OF_OTHERS:
                        yield from self._templates(message, self._around(node))

    def _around(self, node: ast.expr) -> ast.FunctionDef | None:
        """The innermost function around a node."""
        around = [each for each in self._functions if each.lineno <= node.lineno <= (each.end_lineno or 0)]
        return max(around, key=lambda each: each.lineno, default=None)

    def _templates(self, node: ast.expr, function: ast.FunctionDef | None) -> list[str]:
        sources: list[tuple[ast.expr, ast.FunctionDef | None]] = []
        match node:
            case ast.Constant() | ast.JoinedStr():
                return self._texts(node, function)
            case ast.IfExp(body=one, orelse=other):
                sources = [(one, function), (other, function)]
            case ast.Name(id=name):
                return self._named(name, function)
            case ast.Attribute(attr=name):
                sources = [(each, None) for each in self._assigned(self._tree, name)]
            case ast.Call(func=ast.Name(id=name)):
                sources = [*self._returned(name)]
        return [each for source, of in sources for each in self._templates(source, of)] or [f"<{ast.unparse(node)}>"]

    def _texts(self, node: ast.expr, function: ast.FunctionDef | None) -> list[str]:
        """The templates of a literal. A value that a local variable has from other literals is one of these."""
        if isinstance(node, ast.Constant):
            return [str(node.value)]
        found = [""]
        for part in node.values if isinstance(node, ast.JoinedStr) else ():
            ends = [str(part.value)] if isinstance(part, ast.Constant) else ["..."]
            match part:
                case ast.FormattedValue(value=ast.Name(id=name)) if function:
                    literals = [
                        e for e in self._assigned(function, name) if isinstance(e, ast.Constant | ast.JoinedStr)
                    ]
                    ends = [text for each in literals for text in self._texts(each, function)] or ends
            found = [begin + end for begin in found for end in ends]
        return found

    def _named(self, name: str, function: ast.FunctionDef | None) -> list[str]:
        if function and (assigned := self._assigned(function, name)):
            return [each for value in assigned for each in self._templates(value, function)]
        if function and name in (parameters := [each.arg for each in function.args.args]):
            place = parameters.index(name) - (parameters[0] == "self")
            return [each for value, of in self._given(function.name, place) for each in self._templates(value, of)]
        return self._templates(self._constants[name], None) if name in self._constants else [f"<{name}>"]

    def _assigned(self, inside: ast.AST, name: str) -> list[ast.expr]:
        return [
            node.value
            for node in ast.walk(inside)
            if isinstance(node, ast.Assign)
            for target in node.targets
            if name == getattr(target, "id", None) or name == getattr(target, "attr", None)
        ]

    def _returned(self, name: str) -> list[tuple[ast.expr, ast.FunctionDef]]:
        return [
            (node.value, each)
            for each in self._functions
            if each.name == name
            for node in ast.walk(each)
            if isinstance(node, ast.Return) and node.value
        ]

    def _given(self, name: str, place: int) -> list[tuple[ast.expr, ast.FunctionDef | None]]:
        """What callers in this module give a function, the parameter itself in its own calls left out."""
        return [
            (node.args[place], around)
            for node in ast.walk(self._tree)
            if isinstance(node, ast.Call) and name in {getattr(node.func, "id", None), getattr(node.func, "attr", None)}
            if (around := self._around(node)) is None or around.name != name
        ]


def messages() -> dict[str, str]:
    """The templates of all messages of the package, and where each is made."""
    paths = sorted((ROOT / "enricher" / "worker").rglob("*.py"))
    constants: dict[str, ast.expr] = {
        name: node.value
        for path in paths
        for node in ast.parse(path.read_text("utf-8")).body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for name in [getattr(node.targets[0], "id", "")]
    }
    return {each: path.relative_to(ROOT).as_posix() for path in paths for each in Messages(path, constants).all()}


def test_every_message_has_a_reason_and_every_reason_a_message() -> None:
    """A new rule needs a reason, and one that is gone leaves none behind."""
    found = messages()
    assert len(found) > 70, "the look at the code has gone blind"
    stages = {each: "transform" if path.endswith("/transforms.py") else "decode" for each, path in found.items()}
    reasons = {each: reason_of(stages[each], "InvalidArticle", each.replace("...", "7")) for each in found}
    assert {} == {found[each]: each for each, reason in reasons.items() if reason == OTHER}
    assert set(REASONS) - set(reasons.values()) == {OWN_CODE_FAILS, MODEL_FAILS, BROKER_REFUSES, OTHER}


@pytest.mark.parametrize("reason", [each for each in REASONS if "..." in each])
def test_no_reason_hides_behind_an_earlier_one(reason: str) -> None:
    """Whatever the values are, the first reason that fits is the message's own."""
    for value in ("7", "'x y'", "", "\n", "a: b, c"):
        assert reason == reason_of("decode", "InvalidArticle", reason.replace("...", value))


def test_what_others_say_is_a_reason_by_where_it_was_said() -> None:
    """The texts of ONNX Runtime, of the broker and of a team's own code are theirs."""
    assert OWN_CODE_FAILS == reason_of("transform", "ValueError", "id is missing")
    assert OWN_ANSWER == reason_of("transform", "InvalidArticle", "what articles.transform returns: a list, not a dict")
    assert MODEL_FAILS == reason_of("inference", "RuntimeException", "[ONNXRuntimeError] : 6 : ...")
    assert BROKER_REFUSES == reason_of("publish", "RefusedOutput", "Broker: Message size too large")
    assert OTHER == reason_of("publish", "Nonsense", "Broker: Message size too large")


@given(st.lists(any_text(max_size=40), max_size=4), st.sampled_from(REASONS))
def test_strangers_make_no_reasons(texts: list[str], reason: str) -> None:
    """Whatever is written into a message, the reason is one of ours."""
    assert reason_of("decode", "InvalidArticle", reason.join(texts)) in REASONS


def test_the_page_explains_every_reason() -> None:
    """With its cause and its cure, and no others."""
    section = PAGE.read_text("utf-8").partition("\n## Reasons\n")[2].partition("\n## ")[0]
    rows = [line.split(" | ") for line in section.splitlines() if line.startswith("| `")]
    explained = [text for row in rows for text in re.findall(r"`([^`]+)`", row[0])]
    assert sorted(REASONS) == sorted(explained)
    assert all(len(row) == 3 and row[1].strip() and row[2].strip(" |") for row in rows)
