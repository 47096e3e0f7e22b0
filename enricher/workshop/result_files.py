"""Writes the reports of `model check`, and removes them again.

By default results go to the model's folder in the cache: its own folder may be the installed package or belong to someone
else.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rich.markup import escape

from enricher.errors import ModelError
from enricher.worker.commands.console import remark_console


def write_result(folder: Path, write: Callable[[Path], Path], what: str) -> Path:
    """Let `write` write into `folder`. Returns what `write` returns. Raises ModelError.

    `what` is for messages, such as "the report".
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return write(folder)
    except OSError as error:
        raise ModelError(f"{what} cannot be written: {error}. Choose another cache (model.cache_dir).") from error


def remove_results(folder: Path, pattern: str) -> None:
    """Remove the files, and say which. Raises ModelError if one cannot be removed."""
    console, found = remark_console(), sorted(folder.glob(pattern))
    for path in found:
        try:
            path.unlink()
        except OSError as error:
            raise ModelError(f"{path} cannot be removed: {error.strerror}") from error
        console.print(f"removed {escape(str(path))}")
    if not found:
        console.print(f"there is nothing to remove in {escape(str(folder))}")
    else:
        console.print("From their next start on, workers use the files in the model's own folder, or defaults.")
