"""The variants that are compared, the checkpoints that they run, and the recipe that int8 needs."""

from __future__ import annotations

import hashlib
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from enricher.worker.inference.checkpoint.folder import Checkpoint
from enricher.worker.inference.device.cores import available_cores
from enricher.worker.inference.device.openvino_session import openvino_problem
from enricher.worker.inference.device.processor import int8_problem
from enricher.worker.inference.graph.openvino import OpenVinoBfloat16, OpenVinoFloat32, OpenVinoInt8
from enricher.worker.inference.graph.recipe import Recipe, TextsFile, write_recipe
from enricher.worker.inference.graph.variants import Variant
from enricher.worker.inference.run.model import open_model
from enricher.worker.records import Window
from enricher.workshop.quantisation.calibrate import DEFAULT_TARGET, calibrate
from tools import ARTICLES
from tools.bench.gpu.checkpoints import SHAPES, write_checkpoint

EMBEDDED = "embedded"
LAYERS = {"base-6": 6, "base-12": 12}
"""BERT-base's width with that many layers, and random weights: for speed only, since its labels mean nothing."""
SHAPE_NAMES = (EMBEDDED, *LAYERS)
WINDOWS_FOR_SPEED = 12
"""Enough to calibrate random weights with, whose speed does not depend on the ranges."""

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Int8(OpenVinoInt8):
    """int8 by the recipe in the model's folder, with the rest in the precision of `runtime`, whatever the processor has."""

    @property
    def name(self) -> str:  # type: ignore[override]
        """Names its graph in the cache."""
        return f"bench-int8-{self.runtime}"

    def problem(self) -> str | None:
        """The obstacle to the precision of the rest, or else to int8."""
        return openvino_problem(self.runtime.removeprefix("openvino-")) or int8_problem()


@dataclass(frozen=True, slots=True)
class Calibrated:
    """A recipe, and the seconds that it took."""

    recipe: Recipe
    seconds: float


def variants() -> list[tuple[str, Variant]]:
    """Title and variant, those of this machine only. The first is what the others are divided by."""
    every: list[tuple[str, Variant]] = [
        ("fp32", OpenVinoFloat32()),
        ("bf16", OpenVinoBfloat16()),
        ("int8, the rest fp32", Int8(runtime="openvino-fp32")),
        ("int8, the rest bf16", Int8(runtime="openvino-bf16")),
    ]
    return [(title, variant) for title, variant in every if variant.problem() is None]


def checkpoint_of(shape: str, folder: Path) -> Checkpoint:
    """A copy of the embedded model in `folder`, or one with random weights that takes the same token ids."""
    embedded = open_model(None)
    if shape == EMBEDDED:
        return Checkpoint.open(Path(shutil.copytree(embedded.folder, folder / embedded.name)))
    base = replace(SHAPES["bert-base"], vocab_size=embedded.config.vocab_size, num_hidden_layers=LAYERS[shape])
    return Checkpoint.open(write_checkpoint(folder / shape, base))


def calibrated(checkpoint: Checkpoint, windows: Sequence[Window], *, target: float, progress: Progress) -> Calibrated:
    """A recipe from `windows` of the sample articles, which is then in the checkpoint's folder."""
    content = ARTICLES.read_bytes()
    texts = TextsFile(
        name=ARTICLES.stem,
        digest=hashlib.sha256(content).hexdigest(),
        number=len(content.splitlines()),
    )
    began_s = time.perf_counter()
    recipe = calibrate(
        checkpoint, windows, seed=0, texts=texts, threads=available_cores(), progress=progress, target=target
    )
    made = Calibrated(recipe, time.perf_counter() - began_s)
    write_recipe(checkpoint.folder, recipe)
    return made


def windows_to_calibrate(shape: str, windows: Sequence[Window], every: int) -> tuple[list[Window], float]:
    """The windows that are not measured, and the share of labels to keep; few and none for random weights."""
    others = [window for number, window in enumerate(windows) if number % every]
    return (others, DEFAULT_TARGET) if shape == EMBEDDED else (others[:WINDOWS_FOR_SPEED], 0.0)
