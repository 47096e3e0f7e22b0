"""Built graphs on disk: one folder per graph, named after everything that determines the graph.

A graph is written to a temporary folder and renamed into place, so a graph that is found is complete, even if several
processes build it at the same time.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from enricher.errors import ModelError

MODEL_FILE = "model.onnx"
GRAPHS_FOLDER = "graphs"
"""The subfolder of a prepared model with the graphs that come with it."""
ASIDE = ".building-"
ABANDONED_AFTER_S = 3600.0
"""A build takes seconds, on a slow disk minutes: an older one belongs to a process that was killed."""

_log = logging.getLogger(__name__)


def cached_graph(cache_dir: Path, key: str, write: Callable[[Path], None], *, mode: int = 0o600) -> Path:
    """The path of the graph with that key. If it is missing, `write` writes it and its weights into a new folder.

    `mode` limits the permissions of files and folders that are made here. Raises ModelError if the disk refuses, and what
    `write` raises.
    """
    wanted = cache_dir / key
    if (wanted / MODEL_FILE).is_file():
        return wanted / MODEL_FILE
    try:
        cache_dir.mkdir(mode=_folder_mode(mode), parents=True, exist_ok=True)
        _sweep(cache_dir, before_s=time.time() - ABANDONED_AFTER_S)
        aside = Path(tempfile.mkdtemp(prefix=ASIDE, dir=cache_dir))
    except OSError as error:
        _log.warning("the model cache %s cannot be written (%s): the graph is built at every start", cache_dir, error)
        return _write(_temporary_folder(), write)
    try:
        _write(aside, write)
        _give_mode(aside, mode)
        return _move_into_place(aside, wanted)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _write(folder: Path, write: Callable[[Path], None]) -> Path:
    """Write and fsync, so that a rename cannot survive a crash without its data."""
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
    """Let everybody who may read the model read the graph. A temporary folder is private; a pod may run as another user."""
    for path in folder.iterdir():
        path.chmod(path.stat().st_mode & mode)
    folder.chmod(_folder_mode(mode))


def _folder_mode(mode: int) -> int:
    """The mode of a folder: everybody who may read its files can search it."""
    return 0o700 | (mode & 0o044) | (mode & 0o044) >> 2


def _move_into_place(aside: Path, wanted: Path) -> Path:
    """Rename the folder. If another process was faster, use its graph."""
    if not (wanted / MODEL_FILE).is_file():
        # Graphs are complete when they are moved here, so files of an incomplete one were deleted later, perhaps by age.
        shutil.rmtree(wanted, ignore_errors=True)
    try:
        aside.rename(wanted)
    except OSError as error:
        if not (wanted / MODEL_FILE).is_file():
            raise ModelError(f"{wanted}: the graph cannot be put into the cache: {error}") from error
    return wanted / MODEL_FILE


def _sweep(cache_dir: Path, *, before_s: float) -> None:
    """Remove the unfinished builds of killed processes: a crash loop must not fill the disk."""
    for folder in cache_dir.glob(f"{ASIDE}*"):
        with contextlib.suppress(OSError):
            if folder.stat().st_mtime < before_s:
                shutil.rmtree(folder, ignore_errors=True)


def _temporary_folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="enricher-model-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
