"""Files that stand under their names only when they are whole."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from enricher.errors import FatalError

log = logging.getLogger(__name__)


def partial_name(path: Path) -> Path:
    """Where the content of `path` grows until it is whole."""
    whole = path.resolve()  # where a link points to: renaming would replace the link
    return whole.with_name(f"{whole.name}.partial")


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """A new file to write to, which takes the name `path` when the body has ended, and keeps another one if it raises.

    A device or a pipe is written to directly. Raises FatalError where it cannot be written.
    """
    if path.exists() and not path.is_file():
        with _opened(path, path) as stream:
            yield stream
        return
    partial = partial_name(path)
    try:
        with _opened(partial, path) as stream:
            yield stream
    except BaseException:
        _tell_of(partial, path)
        raise
    try:
        if path.exists():
            shutil.copymode(path, partial)
        partial.replace(path.resolve())
    except OSError as error:
        raise FatalError(f"cannot write {path}: {error.strerror}; what it would hold is in {partial}") from error


def _opened(path: Path, wanted: Path) -> BinaryIO:
    try:
        return path.open("wb")
    except OSError as error:
        raise FatalError(f"cannot write {wanted}: {error.strerror}") from error


def _tell_of(partial: Path, path: Path) -> None:
    if not partial.is_file():
        return
    if partial.stat().st_size == 0:
        partial.unlink()
        return
    log.warning("%s was not written: what there is of it is in %s", path, partial)
