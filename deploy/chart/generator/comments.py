"""Reads the descriptions in values.yaml: comments above a value that begin with `# --`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import yaml
from yaml.constructor import SafeConstructor

if TYPE_CHECKING:
    from collections.abc import Iterator

_MARK = "# --"


@dataclass(frozen=True, slots=True)
class Described:
    """A value with a description."""

    path: tuple[str, ...]
    default: Any
    description: str


def described(text: str) -> list[Described]:
    """All values with a description, in the order of the file."""
    root = yaml.compose(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # in C, where it was built
    assert isinstance(root, yaml.MappingNode)
    return list(_described(root, text.splitlines(), ()))


def undescribed(text: str) -> list[str]:
    """The values without a description, neither their own nor one of a value above them."""
    known = [each.path for each in described(text)]
    return [
        ".".join(path)
        for path in _leaves(yaml.safe_load(text), ())
        if not any(path[: len(prefix)] == prefix for prefix in known)
    ]


def _described(node: yaml.MappingNode, lines: list[str], above: tuple[str, ...]) -> Iterator[Described]:
    for key, value in node.value:
        path = (*above, str(key.value))
        if description := _comment_above(lines, key.start_mark.line):
            yield Described(path, _plain(value), description)
        if isinstance(value, yaml.MappingNode):
            yield from _described(value, lines, path)


def _comment_above(lines: list[str], line: int) -> str:
    """The description that ends directly above a line; empty if there is none."""
    block: list[str] = []
    while line > 0 and (text := lines[line - 1].strip()).startswith("#"):
        block.insert(0, text)
        line -= 1
        if text.startswith(_MARK):
            return " ".join([block[0].removeprefix(_MARK).strip(), *(each.lstrip("# ") for each in block[1:])])
    return ""


def _plain(node: yaml.Node) -> Any:  # noqa: ANN401  whatever the file holds
    return SafeConstructor().construct_document(node)


def _leaves(value: Any, above: tuple[str, ...]) -> Iterator[tuple[str, ...]]:  # noqa: ANN401  as above
    if isinstance(value, dict) and value:
        for name, part in value.items():
            yield from _leaves(part, (*above, name))
    else:
        yield above
