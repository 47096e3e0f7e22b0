"""Modules that import each other. `imports_when_loaded` and `circles` find them."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

Import = ast.Import | ast.ImportFrom


def circles(imports: dict[str, set[str]]) -> list[str]:
    """Modules that import each other when they are loaded, directly or through others. `imports`: of each module."""
    reached = {module: _reached(module, imports) for module in imports}
    return [module for module, others in reached.items() if module in others]


def imports_when_loaded(files: dict[str, list[Import]]) -> dict[str, set[str]]:
    """The modules among these that each of them imports. `files`: by path, what `when_loaded` finds in each."""
    modules = {_module(path): found for path, found in files.items()}
    return {
        module: {name for node in found for name in _names(node, modules) if name != module}
        for module, found in modules.items()
    }


def when_loaded(body: Iterable[ast.stmt]) -> Iterator[Import]:
    """The imports of a module, those for types and inside functions left out."""
    for node in body:
        if isinstance(node, Import):
            yield node
        elif isinstance(node, ast.Try | ast.With) or (
            isinstance(node, ast.If) and "TYPE_CHECKING" not in ast.unparse(node.test)
        ):
            yield from when_loaded(node.body)


def _module(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _reached(module: str, imports: dict[str, set[str]]) -> set[str]:
    found, left = set[str](), [*imports[module]]
    while left:
        if (name := left.pop()) not in found:
            found.add(name)
            left += imports[name]
    return found


def _names(node: Import, modules: dict[str, list[Import]]) -> Iterator[str]:
    """The imported modules: `from package import name` may name one."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names if alias.name in modules)
    else:
        for alias in node.names:
            name = f"{node.module}.{alias.name}"
            if name in modules or node.module in modules:
                yield name if name in modules else str(node.module)
