"""Checkpoints for several tasks: heads with random weights on the embedded encoder, which cost what trained ones cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from enricher.worker.inference.checkpoint.folder import Checkpoint
from enricher.worker.inference.run.advice import ADVICE_FILE
from enricher.worker.inference.run.model import EMBEDDED, open_model
from enricher.worker.settings import Settings, TaskSettings
from tools.heads.checkpoint import CLASSIFIER, POOLER, Weights, is_half, join, write_head
from tools.heads.pooling import write_embedding

_SEED = 19


@dataclass(frozen=True, slots=True)
class Sources:
    """Folders of checkpoints by the name of their task."""

    folders: Mapping[str, str]

    def settings(self, settings: Settings, *names: str) -> Settings:
        """The settings with these tasks."""
        return settings.model_copy(update={"tasks": {name: TaskSettings(source=self.folders[name]) for name in names}})


def make_checkpoints(folder: Path) -> Sources:
    """Write a folder for each task: 73 MB each.

    `topic` (8 classes) and `tone` (3 labels, any of which may hold) and `vectors` (mean, normalised) share the embedded
    encoder with `ner`.
    """
    encoder = open_model(EMBEDDED)
    random = np.random.default_rng(_SEED)
    for name, labels in (("topic", 8), ("tone", 3)):
        head = folder / "heads" / name
        names = [f"class {number}" for number in range(labels)]
        write_head(head, encoder, _random_head(random, encoder, labels), names, several=name == "tone")
        join(head, encoder, folder / name)
    write_embedding(encoder, folder / "vectors", "mean_tokens", normalised=True)
    (folder / "vectors" / ADVICE_FILE).unlink()  # so that its windows are as long as those of the others
    return Sources({"ner": EMBEDDED} | {name: str(folder / name) for name in ("topic", "tone", "vectors")})


def _random_head(random: np.random.Generator, encoder: Checkpoint, labels: int) -> Weights:
    width, kind = encoder.config.hidden_size, np.float16 if is_half(encoder) else np.float32
    sizes = ((width, width), (width,), (labels, width), (labels,))
    shapes = zip((*POOLER, *CLASSIFIER), sizes, strict=True)
    return {name: random.normal(scale=0.05, size=shape).astype(kind) for name, shape in shapes}
