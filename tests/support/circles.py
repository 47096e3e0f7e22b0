"""Modules that import each other. `imports_when_loaded` and `circles` find them."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from tools.structure.smells import Parsed


def circles(imports: dict[str, set[str]]) -> list[str]:
    """Modules that import each other when they are loaded, directly or through others. `imports`: of each module."""
    reached = {module: _reached(module, imports) for module in imports}
    return [module for module, others in reached.items() if module in others]


def imports_when_loaded(parsed: Parsed) -> dict[str, set[str]]:
    """The modules among these that each of them imports, imports for types and inside functions left out."""
    modules = {_module(path): tree for path, tree in parsed.items()}
    return {
        module: {name for node in _imports(tree.body) for name in _names(node, modules) if name != module}
        for module, tree in modules.items()
    }


def _module(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _reached(module: str, imports: dict[str, set[str]]) -> set[str]:
    found, left = set[str](), [*imports[module]]
    while left:
        if (name := left.pop()) not in found:
            found.add(name)
            left += imports[name]
    return found


def _imports(body: Iterable[ast.stmt]) -> Iterator[ast.Import | ast.ImportFrom]:
    for node in body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif isinstance(node, ast.Try | ast.With) or (
            isinstance(node, ast.If) and "TYPE_CHECKING" not in ast.unparse(node.test)
        ):
            yield from _imports(node.body)


def _names(node: ast.Import | ast.ImportFrom, modules: dict[str, ast.Module]) -> Iterator[str]:
    """The imported modules: `from package import name` may name one."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names if alias.name in modules)
    else:
        for alias in node.names:
            name = f"{node.module}.{alias.name}"
            if name in modules or node.module in modules:
                yield name if name in modules else str(node.module)
