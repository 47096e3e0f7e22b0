"""A trained head as BertForSequenceClassification: by itself (600 kB, or half in float16), and joined with its encoder.

The encoder's weights are copied bit for bit, so that the worker runs the task in one pass with others on that encoder.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from enricher.worker.inference.checkpoint.folder import TOKENIZER_FILES, Checkpoint
from enricher.worker.inference.checkpoint.same_encoder import encoder_digest
from enricher.worker.records import Float32Array
from tools.heads.regression import Regression, train

HEAD_FILE, CONFIG_FILE, WEIGHTS_FILE = "head.safetensors", "config.json", "model.safetensors"
_NOT_ENCODER = ("classifier.", "bert.pooler.", "cls.", "qa_outputs.")
_SMALL = 0.05
"""The pooler is tanh: with inputs this small it is linear up to 1 %."""
POOLER = "bert.pooler.dense.weight", "bert.pooler.dense.bias"
CLASSIFIER = "classifier.weight", "classifier.bias"
Weights = dict[str, Any]


class UnfitHead(Exception):
    """The head and the encoder do not belong together; the message says why."""


def fit(
    rows: Float32Array, classes: np.ndarray[tuple[int], np.dtype[np.int64]], count: int, *, penalty: float, half: bool
) -> Weights:
    """The weights of pooler and classifier, in float16 if `half`.

    The pooler standardises each number of the first token's state; the classifier is trained on what the rounded pooler
    gives.
    """
    kind = np.float16 if half else np.float32
    scale = rows.std(0) + 1e-6
    pooler = {
        POOLER[0]: np.diag(_SMALL / scale).astype(kind),
        POOLER[1]: (-_SMALL * rows.mean(0) / scale).astype(kind),
    }
    found = train(_pool(pooler, rows), classes, count, penalty=penalty)
    return pooler | _fold(found, kind)


def logits(weights: Weights, rows: Float32Array) -> Float32Array:
    """The head's logits for first-token states, `float32 [rows, classes]`."""
    weight, bias = (weights[name].astype(np.float32) for name in CLASSIFIER)
    found: Float32Array = _pool(weights, rows) @ weight.T + bias
    return found


def _pool(weights: Weights, rows: Float32Array) -> Float32Array:
    weight, bias = (weights[name].astype(np.float32) for name in POOLER)
    found: Float32Array = np.tanh(rows @ weight.T + bias)
    return found


def _fold(found: Regression, kind: type[np.floating[Any]]) -> Weights:
    weight = found.weight / found.scale
    return {CLASSIFIER[0]: weight.astype(kind), CLASSIFIER[1]: (found.bias - weight @ found.mean).astype(kind)}


def is_half(encoder: Checkpoint) -> bool:
    """Whether the encoder's weights are float16: a checkpoint has one type."""
    with safe_open(encoder.folder / WEIGHTS_FILE, framework="numpy") as weights:
        names: list[str] = list(weights.keys())
        return bool(weights.get_tensor(names[0]).dtype == np.float16)


def write_head(
    folder: Path, encoder: Checkpoint, weights: Weights, labels: Sequence[str], *, several: bool = False
) -> None:
    """Write the head without its encoder, whose digest it names. `several`: any number of its labels may hold."""
    folder.mkdir(parents=True, exist_ok=True)
    config = orjson.loads((encoder.folder / CONFIG_FILE).read_bytes()) | {
        "architectures": ["BertForSequenceClassification"],
        "problem_type": f"{'multi' if several else 'single'}_label_classification",
        "id2label": {str(index): label for index, label in enumerate(labels)},
        "label2id": {label: index for index, label in enumerate(labels)},
        "_name_or_path": folder.name,
    }
    (folder / CONFIG_FILE).write_bytes(orjson.dumps(config, option=orjson.OPT_INDENT_2) + b"\n")
    named = {"encoder": encoder.name, "encoder_digest": encoder_digest(encoder), "format": "pt"}
    save_file(weights, folder / HEAD_FILE, metadata=named)


def weights_of(encoder: Checkpoint) -> Weights:
    """The weights of a checkpoint below its head."""
    stored = load_file(encoder.folder / WEIGHTS_FILE)
    return {name: value for name, value in stored.items() if not name.startswith(_NOT_ENCODER)}


def join(head: Path, encoder: Checkpoint, out: Path) -> None:
    """Write a checkpoint folder of a head and its encoder. Raises UnfitHead if it was trained on another one."""
    with safe_open(head / HEAD_FILE, framework="numpy") as opened:
        named = opened.metadata()
    if named["encoder_digest"] != encoder_digest(encoder):
        raise UnfitHead(f"{head} was trained on another encoder ({named['encoder']}) than that of {encoder.folder}")
    out.mkdir(parents=True, exist_ok=True)
    save_file(weights_of(encoder) | load_file(head / HEAD_FILE), out / WEIGHTS_FILE, metadata={"format": "pt"})
    for name in TOKENIZER_FILES:
        if (encoder.folder / name).is_file():
            shutil.copyfile(encoder.folder / name, out / name)
    shutil.copyfile(head / CONFIG_FILE, out / CONFIG_FILE)
