"""Runs the float32 graph and observes the inputs of its products: ranges per channel, and a sample of rows.

Beside the model it needs memory for the outputs of one batch (BATCH_BYTES) and for the sample (SAMPLE_BYTES), however many
windows there are.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import TensorProto, helper

from enricher.errors import ModelError
from enricher.worker.inference.checkpoint.families import CLASSIFIER
from enricher.worker.inference.device.opening import open_session
from enricher.worker.inference.graph.builder import build
from enricher.worker.inference.graph.onnx_file import OnnxWriter
from enricher.worker.inference.graph.padded import PaddedFloat32
from enricher.worker.rules.batching import by_length

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    import numpy.typing as npt

    from enricher.worker.inference.checkpoint.folder import Checkpoint
    from enricher.worker.inference.device.session import Session
    from enricher.worker.records import Float32Array, Window

MODEL_FILE = "model.onnx"
WEIGHTS_FILE = "model.weights"
BATCH_BYTES = 128 * 1024 * 1024
"""The size of the values that one run may return. A run returns at least one window."""
SAMPLE_BYTES = 256 * 1024 * 1024
SAMPLED_ROWS = 1024
"""The tokens of a value that are kept, as float16, to compare candidates by the errors of products."""


@dataclass(slots=True)
class Observed:
    """The range and a sample of one value, which is the input of `products`. Padding is not counted."""

    value: str
    products: tuple[str, ...]
    width: int
    low: Float32Array = field(init=False)
    """`float32 [width]`, the lowest value of each channel."""
    high: Float32Array = field(init=False)
    rows: list[npt.NDArray[np.float16]] = field(default_factory=list)
    """The sample, `float16 [tokens, width]` each."""

    def __post_init__(self) -> None:
        """Begin with an empty range and no sample."""
        self.low = np.zeros(self.width, np.float32)
        self.high = np.zeros(self.width, np.float32)

    def take(self, values: Float32Array, chosen: npt.NDArray[np.int64]) -> None:
        """Note values, `float32 [tokens, width]`; `chosen` tokens go into the sample. Raises ModelError if not finite."""
        if not np.isfinite(values).all():
            message = f"the model computes NaN or infinite values ({self.value}), so int8 has no ranges: choose fp32"
            raise ModelError(message)
        np.minimum(self.low, values.min(axis=0), out=self.low)
        np.maximum(self.high, values.max(axis=0), out=self.high)
        limit = np.finfo(np.float16).max
        self.rows.append(np.clip(values[chosen], -limit, limit).astype(np.float16))

    @property
    def sample(self) -> Float32Array:
        """`float32 [rows, width]`."""
        return np.concatenate(self.rows).astype(np.float32)


def build_float32(checkpoint: Checkpoint, folder: Path) -> Path:
    """The padded float32 graph, in `folder`."""
    with (folder / WEIGHTS_FILE).open("wb") as weights:
        model = build([checkpoint], PaddedFloat32(), OnnxWriter(weights, WEIGHTS_FILE))
    (folder / MODEL_FILE).write_bytes(model.SerializeToString())
    return folder / MODEL_FILE


def quantisable_inputs(path: Path) -> list[Observed]:
    """The inputs of the encoder's products, in the graph's order. The classifier stays in float32."""
    graph = onnx.load(str(path), load_external_data=False).graph
    shapes = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    found: dict[str, list[str]] = {}
    for node in graph.node:
        if node.op_type == "MatMul" and node.input[1] in shapes and not node.input[1].startswith(f"{CLASSIFIER}."):
            found.setdefault(node.input[0], []).append(node.input[1].removesuffix(".weight"))
    return [Observed(value, tuple(names), shapes[f"{names[0]}.weight"][0]) for value, names in found.items()]


def _open_with_outputs(path: Path, inputs: Sequence[Observed], threads: int) -> Session:
    """The graph with these inputs as further outputs."""
    model = onnx.load(str(path), load_external_data=False)
    for each in inputs:
        dimensions: list[str | int | None] = [*PaddedFloat32.token_dimensions, each.width]
        model.graph.output.append(helper.make_tensor_value_info(each.value, TensorProto.FLOAT, dimensions))
    observed = path.with_name("observed.onnx")
    observed.write_bytes(model.SerializeToString())
    return open_session(observed, "cpu", threads_per_run=threads)


def observe(
    path: Path, windows: Sequence[Window], seed: int, threads: int, progress: Callable[[str, int, int], None]
) -> list[Observed]:
    """Run `windows` through the float32 graph. Blocks."""
    inputs = quantisable_inputs(path)
    session, variant, draw = _open_with_outputs(path, inputs, threads), PaddedFloat32(), np.random.default_rng(seed)
    channels = sum(each.width for each in inputs)
    share = min(SAMPLED_ROWS, SAMPLE_BYTES // (2 * channels)) / sum(window.length_tokens for window in windows)
    done = 0
    for batch in batches_of(windows, 4 * channels):
        values = session.run([each.value for each in inputs], variant.feeds(batch, 0))
        chosen = np.flatnonzero(draw.random(sum(window.length_tokens for window in batch)) < share)
        for each, value in zip(inputs, values, strict=True):
            each.take(real_rows(value, batch), chosen)
        done += len(batch)
        progress("observing", done, len(windows))
    return inputs


def batches_of(windows: Sequence[Window], bytes_per_token: int) -> list[list[Window]]:
    """Windows of similar length together, within BATCH_BYTES."""
    return by_length(windows, BATCH_BYTES // bytes_per_token)


def real_rows(values: Float32Array, windows: Sequence[Window]) -> Float32Array:
    """`[batch, length, width]` without padding: `[tokens, width]`."""
    lengths = np.array([window.length_tokens for window in windows])
    rows: Float32Array = values[np.arange(values.shape[1]) < lengths[:, None]]
    return rows
