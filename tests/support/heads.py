"""Checkpoints with heads of other kinds on a given encoder, made from a token classification checkpoint."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import load_file, save_file

_WEIGHTS = "model.safetensors"


def class_model(
    source: Path,
    folder: Path,
    labels: Sequence[str],
    *,
    multi_label: bool = False,
    bias: npt.NDArray[np.float32] | None = None,
    scale: float = 1.0,
) -> Path:
    """The encoder in `source` (BERT) with a random classification head."""
    weights = _encoder(source, folder)
    config: dict[str, Any] = json.loads((folder / "config.json").read_bytes())
    width, random = config["hidden_size"], np.random.default_rng(7)
    weights["bert.pooler.dense.weight"] = np.eye(width, dtype=np.float32)
    weights["bert.pooler.dense.bias"] = np.zeros(width, np.float32)
    weights["classifier.weight"] = random.normal(0, scale, (len(labels), width)).astype(np.float32)
    weights["classifier.bias"] = np.zeros(len(labels), np.float32) if bias is None else bias
    config |= {
        "architectures": ["BertForSequenceClassification"],
        "problem_type": f"{'multi' if multi_label else 'single'}_label_classification",
        "id2label": {str(number): label for number, label in enumerate(labels)},
        "label2id": {label: number for number, label in enumerate(labels)},
    }
    _write(folder, config, weights)
    return folder


def number_model(source: Path, folder: Path) -> Path:
    """The encoder in `source` (BERT) with a random head for regression."""
    class_model(source, folder, ["LABEL_0"], scale=3.0)
    config = json.loads((folder / "config.json").read_bytes())
    (folder / "config.json").write_text(json.dumps({**config, "problem_type": "regression"}))
    return folder


def vector_model(source: Path, folder: Path) -> Path:
    """The encoder in `source` (BERT) as sentence embeddings by the mean of tokens."""
    weights = {name.removeprefix("bert."): value for name, value in _encoder(source, folder).items()}
    config: dict[str, Any] = json.loads((folder / "config.json").read_bytes())
    config |= {"architectures": ["BertModel"]}
    (folder / "1_Pooling").mkdir()
    pooling = {"word_embedding_dimension": config["hidden_size"], "pooling_mode_mean_tokens": True}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    _write(folder, config, weights)
    return folder


def _encoder(source: Path, folder: Path) -> dict[str, Any]:
    """Copies the files, without reports and recipe; returns the weights below the head."""
    ignored = shutil.ignore_patterns("gate-*", "int8.json", "README.md")
    shutil.copytree(source, folder, ignore=ignored)
    return {name: value for name, value in load_file(folder / _WEIGHTS).items() if not name.startswith("classifier.")}


def _write(folder: Path, config: dict[str, Any], weights: dict[str, Any]) -> None:
    (folder / "config.json").write_text(json.dumps(config))
    save_file(weights, folder / _WEIGHTS)
