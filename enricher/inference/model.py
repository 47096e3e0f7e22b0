"""A checkpoint folder -> a graph on disk, made for one device, built once and found again.

The cache holds a folder per graph, named by everything that it depends on. It is written aside and renamed into place,
so that what is found is complete, whoever else builds the same at the same time. Running the graph is engine.py's.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from enricher.errors import ModelError
from enricher.inference.checkpoint import Checkpoint
from enricher.inference.device import PROVIDERS, Device, resolve_device
from enricher.inference.graph import BUILDER_VERSION, build
from enricher.inference.onnxfile import OnnxWriter
from enricher.inference.padded import PaddedFloat32
from enricher.records import ModelCard

if TYPE_CHECKING:
    from enricher.inference.forms import Form

EMBEDDED = "newswire-minilm"
"""The model that comes with the package."""
EMBEDDED_FOLDER = Path(__file__).parent.parent / "models" / EMBEDDED
MODEL_FILE = "model.onnx"
WEIGHTS_FILE = "model.weights"
ASIDE = ".building-"
ABANDONED_AFTER_S = 3600.0
"""A build takes seconds, on a slow disk minutes: one that is this old belongs to a process that was killed."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PreparedModel:
    """A graph on disk, what it was made from, and where it is to run."""

    onnx_path: Path
    checkpoint: Checkpoint
    card: ModelCard
    device: Device
    form: Form

    @property
    def provider(self) -> str:
        """The execution provider that must run it, as ONNX Runtime names it."""
        return PROVIDERS[self.device]


def prepare(
    source: str | Path | None,
    *,
    device: Literal["auto", "cpu", "cuda"],
    precision: Literal["auto", "fp32"],
    cache_dir: Path,
) -> PreparedModel:
    """Open a checkpoint (None or its name: the embedded one) and build its graph, unless `cache_dir` has it already.

    Takes about a second for a small model and a disk's time for a large one. Raises ModelError, saying what to do.
    """
    chosen = resolve_device(device)
    form = _form(precision)
    checkpoint = Checkpoint.open(EMBEDDED_FOLDER if source in {None, EMBEDDED} else Path(str(source)))
    card = ModelCard(name=checkpoint.name, digest=checkpoint.digest, precision=form.precision)
    return PreparedModel(_graph(checkpoint, form, cache_dir), checkpoint, card, chosen, form)


def _form(precision: Literal["auto", "fp32"]) -> Form:
    """The layout for a device and a precision. So far one serves all."""
    assert precision in {"auto", "fp32"}, "other precisions have no form yet"
    return PaddedFloat32()


def _graph(checkpoint: Checkpoint, form: Form, cache_dir: Path) -> Path:
    """The path of the built graph, building it where it is not there yet."""
    wanted = cache_dir / f"{checkpoint.digest[:32]}-{form.name}-{BUILDER_VERSION}"
    if (wanted / MODEL_FILE).is_file():
        return wanted / MODEL_FILE
    try:
        cache_dir.mkdir(parents=True, exist_ok=True)
        _sweep(cache_dir, before_s=time.time() - ABANDONED_AFTER_S)
        aside = Path(tempfile.mkdtemp(prefix=ASIDE, dir=cache_dir))
    except OSError as error:
        _log.warning(
            "the model cache %s cannot be written (%s): the graph is built again at every start", cache_dir, error
        )
        return _build(checkpoint, form, _temporary_folder())
    try:
        _build(checkpoint, form, aside)
        return _move_into_place(aside, wanted)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _build(checkpoint: Checkpoint, form: Form, folder: Path) -> Path:
    """Write graph and weights, and on to the disk: a rename must not outlive the bytes that it announces."""
    try:
        with (folder / WEIGHTS_FILE).open("wb") as weights:
            model = build(checkpoint, form, OnnxWriter(weights, WEIGHTS_FILE))
            weights.flush()
            os.fsync(weights.fileno())
        with (folder / MODEL_FILE).open("wb") as file:
            file.write(model.SerializeToString())
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise ModelError(
            f"{folder}: the graph cannot be written: {error}. Free some space, or choose another cache."
        ) from error
    return folder / MODEL_FILE


def _move_into_place(aside: Path, wanted: Path) -> Path:
    """One rename. Where another process was faster, its graph is as good as ours."""
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
