"""Loaded by each Python process that a profiled test starts: what of its processor time importing and loading models takes.

The figures of a process that is killed are those of its last import or model.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class _Imports(importlib.abc.MetaPathFinder):
    """Times modules that are imported by no other module, and the loader of models once it is there."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / f"child-{os.getpid()}-{time.monotonic_ns()}.json"
        self._figures: dict[str, Any] = {"pid": os.getpid(), "imports": time.process_time(), "models": 0.0}
        self._depth = 0
        self._write()

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        loader = spec.loader if spec else None
        if spec is None or not isinstance(loader, importlib.machinery.SourceFileLoader):
            return None
        run = loader.exec_module

        def timed(module: ModuleType) -> None:
            started_s = time.process_time()
            self._depth += 1
            try:
                run(module)
            finally:
                self._depth -= 1
                if self._depth == 0:
                    self._add("imports", started_s)
            if name == "enricher.worker.wiring.loaded_tasks":
                vars(module)["load_model"] = self._timed_loading(module.load_model)

        loader.exec_module = timed  # type: ignore[method-assign]
        return spec

    def _timed_loading(self, load: Callable[P, R]) -> Callable[P, R]:
        def timed(*arguments: P.args, **named: P.kwargs) -> R:
            started_s, imports_s = time.process_time(), self._figures["imports"]
            try:
                return load(*arguments, **named)
            finally:
                self._add("models", started_s + self._figures["imports"] - imports_s)

        return timed

    def _add(self, cause: str, started_s: float) -> None:
        self._figures[cause] += time.process_time() - started_s
        self._write()

    def _write(self) -> None:
        """Replaces the file at once: the process may be killed at any moment."""
        new = self._path.with_suffix(".new")
        new.write_text(json.dumps(self._figures))
        new.replace(self._path)


if folder := os.environ.get("PYTEST_PROFILE_FOLDER"):
    sys.meta_path.insert(0, _Imports(Path(folder)))
