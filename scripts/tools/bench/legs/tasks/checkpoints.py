"""Checkpoints for several tasks: heads with random weights on the embedded encoder, which cost what trained ones cost."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import orjson
from safetensors.numpy import load_file, save_file

from enricher.worker.inference.checkpoint.folder import Checkpoint
from enricher.worker.inference.run.advice import ADVICE_FILE
from enricher.worker.inference.run.model import EMBEDDED, open_model
from enricher.worker.settings import Settings, TaskSettings
from tools.heads.checkpoint import CLASSIFIER, CONFIG_FILE, POOLER, WEIGHTS_FILE, Weights, is_half, join, write_head
from tools.heads.pooling import write_embedding

_OTHER_LAYERS = 3
_SEED = 19


@dataclass(frozen=True, slots=True)
class Sources:
    """Folders of checkpoints by the name of their task."""

    folders: Mapping[str, str]

    def settings(self, settings: Settings, *names: str) -> Settings:
        """The settings with these tasks, in the precision of `model.precision`."""
        precision = settings.model.precision
        tasks = {name: TaskSettings(source=self.folders[name], precision=precision) for name in names}
        # A precision of `model`, even the default, is refused beside tasks.
        model = type(settings.model)(**settings.model.model_dump(exclude={"precision"}, exclude_unset=True))
        return settings.model_copy(update={"model": model, "tasks": tasks})


def make_checkpoints(folder: Path) -> Sources:
    """Write a folder for each task: 73 MB each, except for the smaller encoder's.

    `topic` (8 classes) and `tone` (3 labels, any of which may hold) and `vectors` (mean, normalised) share the embedded
    encoder with `ner`; `other` classifies with its first layers only.
    """
    encoder = open_model(EMBEDDED)
    few, random = _first_layers(encoder, folder / "few"), np.random.default_rng(_SEED)
    for name, own, labels in (("topic", encoder, 8), ("tone", encoder, 3), ("other", few, 8)):
        head = folder / "heads" / name
        names = [f"class {number}" for number in range(labels)]
        write_head(head, own, _random_head(random, own, labels), names, several=name == "tone")
        join(head, own, folder / name)
    write_embedding(encoder, folder / "vectors", "mean_tokens", normalised=True)
    (folder / "vectors" / ADVICE_FILE).unlink()  # so that its windows are as long as those of the others
    return Sources({"ner": EMBEDDED} | {name: str(folder / name) for name in ("topic", "tone", "other", "vectors")})


def _first_layers(encoder: Checkpoint, folder: Path) -> Checkpoint:
    """The encoder without its later layers."""
    shutil.copytree(encoder.folder, folder)
    config = orjson.loads((folder / CONFIG_FILE).read_bytes())
    (folder / CONFIG_FILE).write_bytes(orjson.dumps(config | {"num_hidden_layers": _OTHER_LAYERS}))
    later = tuple(f"bert.encoder.layer.{number}." for number in range(_OTHER_LAYERS, encoder.config.layers))
    weights = load_file(folder / WEIGHTS_FILE)
    save_file({name: each for name, each in weights.items() if not name.startswith(later)}, folder / WEIGHTS_FILE)
    return Checkpoint.open(folder)


def _random_head(random: np.random.Generator, encoder: Checkpoint, labels: int) -> Weights:
    width, kind = encoder.config.hidden_size, np.float16 if is_half(encoder) else np.float32
    sizes = ((width, width), (width,), (labels, width), (labels,))
    shapes = zip((*POOLER, *CLASSIFIER), sizes, strict=True)
    return {name: random.normal(scale=0.05, size=shape).astype(kind) for name, shape in shapes}
