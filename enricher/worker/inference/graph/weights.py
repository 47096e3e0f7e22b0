"""Nodes that several encoders have: of the weights of one checkpoint (products, norms, biases), and of places.

Places are those of tokens within their window, and distances between them, where attention depends on them: they depend on
the length of the batch alone, and are made once. Nothing here knows an architecture, or what a value is for.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from enricher.errors import ModelError
from enricher.worker.inference.checkpoint.families import EncoderConfig
from enricher.worker.inference.checkpoint.folder import Checkpoint, OpenFiles
from enricher.worker.inference.graph.graph_files import MICROSOFT, OnnxWriter
from enricher.worker.records import Float32Array
from enricher.worker.rules.windowing import LENGTH_STEP_TOKENS


@dataclass(frozen=True, slots=True)
class Weights:
    """Adds nodes that use weights of one checkpoint. Methods raise ModelError if a weight does not fit."""

    checkpoint: Checkpoint
    writer: OnnxWriter
    element: np.dtype[Any]
    """The type of weights and intermediate values."""
    prefix: str = ""
    """The beginning of every name in the graph, so that no two heads share a name."""
    opened: OpenFiles = field(default_factory=dict)

    def matmul(self, name: str, value: str, width_in: int, width_out: int) -> str:
        """Multiply by a module's weight."""
        return self.product(name, value, self.read(f"{name}.weight", (width_out, width_in)))

    def product(self, name: str, value: str, weight: Float32Array) -> str:
        """Multiply by a weight, which PyTorch stores as `[out, in]` and MatMul takes as `[in, out]`."""
        inputs = [value, self.write(f"{name}.weight", np.ascontiguousarray(weight.T))]
        return self.writer.node("MatMul", inputs, f"{self.prefix}{name}.matmul")

    def norm(self, name: str, value: str, width: int, *, biased: bool = True) -> str:
        """Layer norm over the last axis."""
        inputs = [value, self.weight(name, (width,)), *([self.bias(name, width)] if biased else [])]
        output, epsilon = f"{self.prefix}{name}.normed", self.checkpoint.config.layer_norm_eps
        return self.writer.node("LayerNormalization", inputs, output, axis=-1, epsilon=epsilon)

    def skip_norm(self, name: str, value: str, skip: str, *, bias: str) -> str:
        """Norm of value + skip + bias, in one operator."""
        width = self.checkpoint.config.hidden_size
        inputs = [value, skip, self.weight(name, (width,)), self.bias(name, width), bias]
        epsilon = self.checkpoint.config.layer_norm_eps
        return self.writer.node("SkipLayerNormalization", inputs, f"{name}.normed", domain=MICROSOFT, epsilon=epsilon)

    def add_bias(self, name: str, value: str, *, output: str | None = None, width: int | None = None) -> str:
        """Add the bias of a module. `width`: the encoder's by default."""
        bias = self.bias(name, width or self.checkpoint.config.hidden_size)
        return self.writer.node("Add", [value, bias], f"{self.prefix}{output or f'{name}.biased'}")

    def bias(self, name: str, width: int) -> str:
        """Write the bias of a module. Returns its name in the graph."""
        return self.write(f"{name}.bias", self.read(f"{name}.bias", (width,)))

    def weight(self, name: str, shape: tuple[int, ...]) -> str:
        """Write the weight of a module. Returns its name in the graph."""
        return self.write(f"{name}.weight", self.read(f"{name}.weight", shape))

    def write(self, name: str, value: Float32Array) -> str:
        """Write a tensor in the graph's type. Returns its name. Raises ModelError if the type cannot represent it."""
        with np.errstate(over="ignore"):
            narrowed = value.astype(self.element, copy=False)
        if not np.isfinite(narrowed).all():
            if not np.isfinite(value).all():
                raise ModelError(
                    f"{self.checkpoint.folder}: {name} has NaN or infinite values. Copy the folder, or train, again."
                )
            largest = np.abs(value).max()
            raise ModelError(
                f"{self.checkpoint.folder}: {name} reaches {largest:g}, which {self.element} cannot represent. "
                f"Choose precision fp32."
            )
        return self.writer.weight(f"{self.prefix}{name}", narrowed)

    def read(self, name: str, shape: tuple[int, ...]) -> Float32Array:
        """Read a tensor of the checkpoint. Raises ModelError if it has another shape."""
        value = self.checkpoint.weight(name, self.opened)
        if value.shape != shape:
            raise ModelError(f"{self.checkpoint.folder}: {name} is {value.shape}, not {shape} as config.json says.")
        return value


def most_places(config: EncoderConfig) -> int:
    """The places that a window may have. Those behind the last position are padding: variants may round lengths up."""
    return config.max_position_embeddings + LENGTH_STEP_TOKENS - 1


def token_places(writer: OnnxWriter, value: str, most: int) -> str:
    """`int64 [length]`: 0, 1, 2, ..., up to `most` of them, for `value`: `[windows, length, width]`, in any layer.

    A slice of a table, as positions are: CUDA would leave a range, and everything computed from it, to the CPU.
    """
    if writer.has("places"):
        return "places"
    table = writer.weight("places.table", np.arange(most, dtype=np.int64))
    length = writer.node("Shape", [value], "places.length", start=1, end=2)
    first, axis = (writer.constant(name, np.array([0], np.int64)) for name in ("places.first", "places.axis"))
    return writer.node("Slice", [table, first, length, axis], "places")


def distances(writer: OnnxWriter, places: str) -> str:
    """`int64 [length, length]`: the place of each query, less that of each key."""
    if writer.has("distances"):
        return "distances"
    queries, keys = along(writer, places, axis=1), along(writer, places, axis=0)
    return writer.node("Sub", [queries, keys], "distances")


def along(writer: OnnxWriter, places: str, *, axis: int) -> str:
    """`[length, 1]` for axis 1, a value for each query; `[1, length]` for axis 0, a value for each key."""
    output = f"{places}.along_{axis}"
    if writer.has(output):
        return output
    return writer.node("Unsqueeze", [places, writer.constant(f"axis_{axis}", np.array([axis], np.int64))], output)
