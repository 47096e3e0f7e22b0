"""What `model check` and `model tune` found: kept in the model's place in the cache, taken back from there.

Never in the model's own folder, unless it is asked for: that may be the installed package, or somebody else's.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from enricher.commands.console import remark_console
from enricher.errors import ModelError

if TYPE_CHECKING:
    from enricher.inference.checkpoint.folder import Checkpoint

DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Measure and tell, write nothing.")]
UndoOption = Annotated[
    bool, typer.Option("--undo", help="Measure nothing: remove what this command has written to the cache.")
]


def folder_in_cache(checkpoint: Checkpoint, cache_dir: Path) -> Path:
    """Where a worker with this cache looks for what was found out about the model."""
    from enricher.inference.run.selection import report_folders  # noqa: PLC0415  it imports ONNX Runtime

    return report_folders(checkpoint, cache_dir)[-1]


def remove_kept(folder: Path, pattern: str) -> None:
    """Remove the files, and say which. Raises ModelError where one cannot be removed."""
    console, found = remark_console(), sorted(folder.glob(pattern))
    for path in found:
        try:
            path.unlink()
        except OSError as error:
            raise ModelError(f"{path} cannot be removed: {error.strerror}") from error
        console.print(f"removed {escape(str(path))}")
    if not found:
        console.print(f"there is nothing to take back in {escape(str(folder))}")
    else:
        console.print(
            "Workers go by what is in the model's own folder again, else by defaults, from their next start on."
        )
