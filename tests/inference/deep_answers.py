"""A deep checkpoint's answers to texts, in batches of mixed lengths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from inference.conftest import MakeWindow, parts_of
from support.layout import rows_of

from enricher.worker.heads import reads_of
from enricher.worker.inference.device.sessions import open_session
from enricher.worker.inference.graph.padded import PaddedFloat16
from enricher.worker.inference.graph.variants import Variant
from enricher.worker.inference.run.model import open_model, prepare_variant
from enricher.worker.inference.run.selection import variants_for
from enricher.worker.records import Float32Array, Int32Array

VARIANTS = [
    *(variant for variant in variants_for("cpu") if variant.problem() is None and not variant.quantised),
    PaddedFloat16(runtime="cpu"),
]
"""The last is the graph of a GPU: on a CPU its weights are in float16, and its numbers in float32."""
LIMITS = {"fp32": 1e-4, "bf16": 0.3, "fp16": 2e-2}
"""Largest difference of a logit or of a vector's number allowed. Logits reach 5; bf16 has 8 bits, and weights are random."""
BATCHES = (1, 7, 16)
"""Sizes of batches, the last of which repeats: short texts beside short ones, and then beside long ones."""


def answers(
    folder: Path, variant: Variant, window: MakeWindow, cache_dir: Path, output: str, texts: Sequence[Int32Array]
) -> list[Float32Array]:
    """The output for each text."""
    return heads_answers([folder], variant, window, cache_dir, [output], texts)[output]


def heads_answers(
    folders: Sequence[Path],
    variant: Variant,
    window: MakeWindow,
    cache_dir: Path,
    outputs: Sequence[str],
    texts: Sequence[Int32Array],
) -> dict[str, list[Float32Array]]:
    """Each output for each text, of heads over one encoder."""
    checkpoint, *others = [open_model(folder) for folder in folders]
    path = prepare_variant(checkpoint, variant, "cpu", cache_dir=cache_dir, others=others).onnx_path
    session, reads = (
        open_session(path, variant.runtime, threads_per_run=1),
        reads_of([each.head for each in (checkpoint, *others)]),
    )
    found: dict[str, list[Float32Array]] = {output: [] for output in outputs}
    for windows in parts_of([window(ids.tolist()) for ids in texts], BATCHES):
        for output, values in zip(outputs, session.run(outputs, variant.feeds(windows, 0, reads)), strict=True):
            found[output] += rows_of(variant, values, windows) if output.endswith("logits") else [*values]
    return found


def require_reference(
    folders: Mapping[str, Path],
    expected: Mapping[str, Float32Array],
    variant: Variant,
    window: MakeWindow,
    cache_dir: Path,
    texts: Sequence[Int32Array],
) -> None:
    """In one graph, each head in its folder says what transformers says. Raises AssertionError."""
    names = ["head.0.logits", *(f"head.{index}.rows" for index in range(1, len(folders)))]
    outputs = dict(zip(folders, names if len(names) > 1 else ["logits"], strict=True))
    found = heads_answers([*folders.values()], variant, window, cache_dir, [*outputs.values()], texts)
    for head, output in outputs.items():
        ours = found[output]
        if head == "labels":
            ours = [values[: len(ids)] for values, ids in zip(ours, texts, strict=True)]
            difference = np.abs(np.concatenate(ours) - expected[head]).max()
        else:
            # Windows of one or two tokens own none, of which a mean could be made.
            rows = [number for number, ids in enumerate(texts) if len(ids) > 2 or head != "mean vector"]
            difference = np.abs(np.stack(ours) - expected[head])[rows].max()
        print(f"\n{variant.name} {head}: {difference:.1e}")
        assert difference < LIMITS[variant.precision]
