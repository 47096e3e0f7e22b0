"""Output files that get their name only when they are complete."""

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
    """The name of `path` while it is incomplete, beside the target if `path` is a link, which a rename would replace."""
    whole = path.resolve()
    return whole.with_name(f"{whole.name}.partial")


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """A new file that is renamed to `path` when the body ends, and keeps its partial name if the body raises.

    Devices and pipes are written directly. Raises FatalError if the file cannot be written.
    """
    if path.exists() and not path.is_file():
        with _open(path, path) as stream:
            yield stream
        return
    partial = partial_name(path)
    try:
        with _open(partial, path) as stream:
            yield stream
    except BaseException:
        _log_partial(partial, path)
        raise
    try:
        if path.exists():
            shutil.copymode(path, partial)
        partial.replace(path.resolve())
    except OSError as error:
        raise FatalError(f"cannot write {path}: {error.strerror}; the complete output is in {partial}") from error


def _open(path: Path, wanted: Path) -> BinaryIO:
    try:
        return path.open("wb")
    except OSError as error:
        raise FatalError(f"cannot write {wanted}: {error.strerror}") from error


def _log_partial(partial: Path, path: Path) -> None:
    if not partial.is_file():
        return
    if partial.stat().st_size == 0:
        partial.unlink()
        return
    log.warning("%s was not completed: its beginning is in %s", path, partial)
