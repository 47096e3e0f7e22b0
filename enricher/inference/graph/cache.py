"""Where graphs made from models are kept: a folder per graph, named by everything that it depends on.

A graph is written aside and renamed into place, so that what is found is complete, whoever else builds the same at the
same time. What is in a graph is model.py's.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from enricher.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Callable

MODEL_FILE = "model.onnx"
GRAPHS_FOLDER = "graphs"
"""In a prepared model's own folder: graphs that came with it."""
ASIDE = ".building-"
ABANDONED_AFTER_S = 3600.0
"""A build takes seconds, on a slow disk minutes: one that is this old belongs to a process that was killed."""

_log = logging.getLogger(__name__)


def kept_graph(cache_dir: Path, key: str, write: Callable[[Path], None], *, mode: int = 0o600) -> Path:
    """The path of the graph of that key; where it is not there yet, `write` writes it, and more files beside it.

    `mode`: of its files, at most; a folder that is made here is as private.
    Raises ModelError where the disk does not take it, and what `write` raises.
    """
    wanted = cache_dir / key
    if (wanted / MODEL_FILE).is_file():
        return wanted / MODEL_FILE
    try:
        cache_dir.mkdir(mode=_folder_mode(mode), parents=True, exist_ok=True)
        _sweep(cache_dir, before_s=time.time() - ABANDONED_AFTER_S)
        aside = Path(tempfile.mkdtemp(prefix=ASIDE, dir=cache_dir))
    except OSError as error:
        _log.warning(
            "the model cache %s cannot be written (%s): the graph is built again at every start", cache_dir, error
        )
        return _written(_temporary_folder(), write)
    try:
        _written(aside, write)
        _give_mode(aside, mode)
        return _move_into_place(aside, wanted)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _written(folder: Path, write: Callable[[Path], None]) -> Path:
    """Write, and on to the disk: a rename must not outlive the bytes that it announces."""
    _log.info("building the graph")
    write(folder / MODEL_FILE)
    try:
        for path in (each for each in folder.iterdir() if each.is_file()):
            with path.open("rb+") as file:
                os.fsync(file.fileno())
    except OSError as error:
        raise ModelError(
            f"{folder}: the graph cannot be written: {error}. Free some space, or choose another cache."
        ) from error
    return folder / MODEL_FILE


def _give_mode(folder: Path, mode: int) -> None:
    """A temporary folder is private; a graph is as private as its model, and a pod's user may be another."""
    for path in folder.iterdir():
        path.chmod(path.stat().st_mode & mode)
    folder.chmod(_folder_mode(mode))


def _folder_mode(mode: int) -> int:
    """May be searched by those who may read its files."""
    return 0o700 | (mode & 0o044) | (mode & 0o044) >> 2


def _move_into_place(aside: Path, wanted: Path) -> Path:
    """One rename. Where another process was faster, its graph is as good as ours."""
    if not (wanted / MODEL_FILE).is_file():
        # What comes here is whole: of one that is not, somebody has removed a part, as those do who clean up by age.
        shutil.rmtree(wanted, ignore_errors=True)
    try:
        aside.rename(wanted)
    except OSError as error:
        if not (wanted / MODEL_FILE).is_file():
            raise ModelError(f"{wanted}: the graph cannot be put into the cache: {error}") from error
    return wanted / MODEL_FILE


def _sweep(cache_dir: Path, *, before_s: float) -> None:
    """Remove what killed processes left: a crash loop must not fill the disk."""
    for folder in cache_dir.glob(f"{ASIDE}*"):
        with contextlib.suppress(OSError):
            if folder.stat().st_mtime < before_s:
                shutil.rmtree(folder, ignore_errors=True)


def _temporary_folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="enricher-model-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
