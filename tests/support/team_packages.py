"""Packages of a team with functions for `articles.transform` and `output.transform`, as pip leaves them in a folder."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path


def install(folder: Path, code: str, names: Iterable[str], *, package: str = "team-code", version: str = "1.2") -> None:
    """Put a package into a folder that is on the path. Each name is a function in `code`, and its entry point."""
    module = package.replace("-", "_")
    (folder / f"{module}.py").write_text(code, "utf-8")
    info = folder / f"{module}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n", "utf-8")
    entries = "".join(f"{name} = {module}:{name}\n" for name in names)
    (info / "entry_points.txt").write_text(f"[enricher.transforms]\n{entries}", "utf-8")
