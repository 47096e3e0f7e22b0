"""Copies the files of a prepared folder, and replaces an older folder by it."""

from __future__ import annotations

import contextlib
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from enricher.errors import ModelError
from enricher.worker.inference.checkpoint.folder import TOKENIZER_FILES
from enricher.worker.inference.graph.recipe import RECIPE_FILE
from enricher.workshop.manifest import MANIFEST_FILE

if TYPE_CHECKING:
    from enricher.worker.inference.checkpoint.folder import Checkpoint

_OPTIONAL_FILES = ("enricher.json", RECIPE_FILE, "README.md", "LICENSE*", "gate-*.json")
"""Files that are copied if they exist: advice on windows, the recipe of int8, origin and licence, reports."""


def files_of(checkpoint: Checkpoint) -> list[Path]:
    """Configuration, weights or graph, tokenizer, and `_OPTIONAL_FILES`; no other file of the folder."""
    folder = checkpoint.folder
    tokenizer = [folder / name for name in TOKENIZER_FILES if (folder / name).is_file()]
    optional = [path for pattern in _OPTIONAL_FILES for path in sorted(folder.glob(pattern)) if path.is_file()]
    return [*checkpoint.files, *tokenizer, *optional]


def copy_files(checkpoint: Checkpoint, folder: Path, on_copy: Callable[[Path], None]) -> None:
    """Copy the files, with links resolved; calls `on_copy` before each. Raises ModelError if the disk is full.

    A copy may be read only by those who may read the original.
    """
    for path in files_of(checkpoint):
        target = folder / path.relative_to(checkpoint.folder)
        on_copy(path)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
            target.chmod(target.stat().st_mode & (path.stat().st_mode | stat.S_IRUSR | stat.S_IWUSR))
        except OSError as error:
            message = f"{target} cannot be written: {error.strerror}"
            raise ModelError(message) from error


@contextlib.contextmanager
def replacement_of(out: Path) -> Iterator[Path]:
    """Yield a temporary folder of the same name, which replaces `out` if the body succeeds. Raises ModelError.

    Only an empty folder, or one that was prepared before, is replaced.
    """
    if out.exists() and not ((out / MANIFEST_FILE).is_file() or (out.is_dir() and not any(out.iterdir()))):
        message = f"{out} exists and was not made by `enricher model prepare`: choose another --out"
        raise ModelError(message)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(prefix=".preparing-", dir=out.parent))
    except OSError as error:
        message = f"{out} cannot be written: {error.strerror}"
        raise ModelError(message) from error
    try:
        # It has its final name already, because a model is named after its folder.
        (aside / out.name).mkdir()
        yield aside / out.name
        _put_in_place(aside, out)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _put_in_place(aside: Path, out: Path) -> None:
    try:
        if out.exists():
            out.rename(aside / "before")
        (aside / out.name).rename(out)
    except OSError as error:
        message = f"{out} cannot be replaced: {error.strerror}. Is another `enricher model prepare` writing it?"
        raise ModelError(message) from error
