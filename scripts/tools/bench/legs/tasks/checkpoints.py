"""Checkpoints for several tasks: heads with random weights on the embedded encoder, which cost what trained ones cost."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from safetensors.numpy import load_file, save_file

from enricher.worker.inference.run.model import open_model
from enricher.worker.settings import Settings, TaskSettings
from tools.heads.pooling import write_pooling

EMBEDDED = "newswire-minilm"
_TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "special_tokens_map.json")
_OTHER_LAYERS = 3
_SEED = 19
Weights = dict[str, Any]


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
    """Write a folder for each task: 45 MB each, except for the smaller encoder's.

    `topic` (8 classes) and `tone` (3 labels, any of which may hold) and `vectors` (mean, normalised) share the embedded
    encoder with `ner`; `other` classifies with its first layers only.
    """
    source = open_model(EMBEDDED).folder
    weights = load_file(source / "model.safetensors")
    config = orjson.loads((source / "config.json").read_bytes())
    encoder = {name: value for name, value in weights.items() if not name.startswith("classifier")}
    few = {name: value for name, value in encoder.items() if _layer(name) < _OTHER_LAYERS}
    random = np.random.default_rng(_SEED)
    width, kind = config["hidden_size"], next(iter(encoder.values())).dtype
    single = {"problem_type": "single_label_classification"}
    several = {"problem_type": "multi_label_classification"}
    made = {
        "topic": _classifier(random, encoder, width, kind, 8, config | single),
        "tone": _classifier(random, encoder, width, kind, 3, config | several),
        "other": _classifier(random, few, width, kind, 8, config | single | {"num_hidden_layers": _OTHER_LAYERS}),
        "vectors": (encoder, config | {"architectures": ["BertModel"]} | _labels(1)),
    }
    for name, (tensors, written) in made.items():
        _write(folder / name, source, tensors, written)
    write_pooling(folder / "vectors", width, "mean_tokens", normalised=True)
    return Sources({"ner": EMBEDDED} | {name: str(folder / name) for name in made})


def _layer(name: str) -> int:
    parts = name.split(".")
    return int(parts[parts.index("layer") + 1]) if "layer" in parts else -1


def _classifier(
    random: np.random.Generator,
    encoder: Weights,
    width: int,
    kind: np.dtype[Any],
    count: int,
    config: dict[str, Any],
) -> tuple[Weights, dict[str, Any]]:
    def some(*shape: int) -> Any:  # noqa: ANN401  the dtype of the checkpoint
        return random.normal(scale=0.05, size=shape).astype(kind)

    head = {
        "bert.pooler.dense.weight": some(width, width),
        "bert.pooler.dense.bias": some(width),
        "classifier.weight": some(count, width),
        "classifier.bias": some(count),
    }
    return encoder | head, config | {"architectures": ["BertForSequenceClassification"]} | _labels(count)


def _labels(count: int) -> dict[str, Any]:
    names = [f"class {number}" for number in range(count)]
    return {"id2label": {str(i): name for i, name in enumerate(names)}, "label2id": {n: i for i, n in enumerate(names)}}


def _write(folder: Path, source: Path, weights: Weights, config: Mapping[str, Any]) -> None:
    folder.mkdir()
    for name in _present(source):
        shutil.copyfile(source / name, folder / name)
    save_file(weights, folder / "model.safetensors")
    (folder / "config.json").write_bytes(orjson.dumps(config))


def _present(source: Path) -> Sequence[str]:
    return [name for name in _TOKENIZER if (source / name).is_file()]
