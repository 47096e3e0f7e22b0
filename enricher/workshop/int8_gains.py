"""Observes the inputs of a float32 graph's products, and chooses gains and clipping for each by the error that they cause.

Gains are SmoothQuant's (Xiao et al. 2022): channels with outliers are divided before rounding, and the weight's rows are
multiplied. The exponent says how much of a channel's range moves into the weight. The best exponent differs from product to
product (after GELU, 0.5 loses and 0.85 helps), so each candidate is tried on a sample of rows.

Beside the model, observing needs memory for the outputs of one batch (BATCH_BYTES) and for the sample (SAMPLE_BYTES),
however many windows there are. Choosing runs no model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper

from enricher.errors import ModelError
from enricher.worker.inference.checkpoint.families import CLASSIFIER
from enricher.worker.inference.checkpoint.folder import Checkpoint
from enricher.worker.inference.device.sessions import Session, open_session
from enricher.worker.inference.graph.builder import build
from enricher.worker.inference.graph.graph_files import OnnxWriter
from enricher.worker.inference.graph.int8 import (
    HIGHEST_UINT8,
    SMALLEST_RANGE,
    STEPS_PER_OCTAVE,
    QuantisedInput,
    activation_scale,
    encode_gains,
    rounded_weight,
    six_digits,
    weight_scales,
)
from enricher.worker.inference.graph.padded import PaddedFloat32
from enricher.worker.records import Float32Array, Window
from enricher.worker.rules.batching import by_length

EXPONENTS = (0.0, 0.5, 0.65, 0.75, 0.85, 0.95)
CLIPS = (1.0, 0.85, 0.7, 0.55)
COMPARED_ROWS = 512
"""Rows that candidates are compared on. With twice as many, 23 of the embedded model's 24 exponents were the same."""
HIGHEST_CLIPPED = 1e-5
"""Share of values that may be clipped. With ten times as many, F1 on documents fell by 1.7 points (measured)."""
MOST_STEPS = 12 * STEPS_PER_OCTAVE
"""Gains stay within 2 ** 12 on either side, also for a channel that is nearly zero."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The best candidate, and its error: the squared error relative to each product, as the mean over the products."""

    quantised: QuantisedInput
    error: float


def choose(observed: Observed, weights: Sequence[Float32Array]) -> Choice:
    """Try every exponent without clipping, then the clips with the best exponent. `weights` are `[in, out]`."""
    sample = observed.sample
    rows = sample[:: -(-len(sample) // COMPARED_ROWS)]
    exact = [rows @ weight for weight in weights]
    powers = [float((product.astype(np.float64) ** 2).sum()) or 1.0 for product in exact]

    def try_out(steps: npt.NDArray[np.int8], exponent: float, clip: float) -> Choice:
        quantised = _candidate(observed, steps, exponent, clip)
        return Choice(quantised, _error(quantised, rows, weights, exact, powers))

    steps = {exponent: _steps(observed, weights, exponent) for exponent in EXPONENTS}
    best = min((try_out(each, exponent, 1.0) for exponent, each in steps.items()), key=lambda each: each.error)
    exponent = best.quantised.exponent
    lowest = _lowest_clip(observed, sample, steps[exponent])
    clips = sorted({max(clip, lowest) for clip in CLIPS} - {1.0}, reverse=True)
    return min([best, *(try_out(steps[exponent], exponent, clip) for clip in clips)], key=lambda each: each.error)


def _candidate(observed: Observed, steps: npt.NDArray[np.int8], exponent: float, clip: float) -> QuantisedInput:
    low, high = _range(observed, steps)
    limit = clip * max(-low, high)
    lowest, highest = six_digits(max(low, -limit)), six_digits(min(high, limit))
    if highest <= 0 or highest - lowest < 2 * SMALLEST_RANGE:  # always zero, or nearly: it needs a range too
        highest = 1.0
    return QuantisedInput(
        value=observed.value,
        products=observed.products,
        low=lowest,
        high=highest,
        clip=six_digits(clip),
        exponent=exponent,
        gains=encode_gains(steps),
    )


def _range(observed: Observed, steps: npt.NDArray[np.int8]) -> tuple[float, float]:
    """Lowest and highest value after gains; 0 is between them."""
    gains = _gains(steps)
    return min(0.0, float((observed.low / gains).min())), max(0.0, float((observed.high / gains).max()))


def _lowest_clip(observed: Observed, sample: Float32Array, steps: npt.NDArray[np.int8]) -> float:
    """The share of the range that all but HIGHEST_CLIPPED of the sample stay within."""
    low, high = _range(observed, steps)
    largest = max(-low, high)
    within = float(np.quantile(np.abs(sample / _gains(steps)), 1 - HIGHEST_CLIPPED))
    return min(1.0, within / largest) if largest else 1.0


def _gains(steps: npt.NDArray[np.int8]) -> Float32Array:
    gains: Float32Array = np.exp2(steps.astype(np.float64) / STEPS_PER_OCTAVE).astype(np.float32)
    return gains


def _steps(observed: Observed, weights: Sequence[Float32Array], exponent: float) -> npt.NDArray[np.int8]:
    """Gains as int8 steps, around 1: `activation ** exponent / weight ** (1 - exponent)` per channel."""
    if exponent == 0.0:
        return np.zeros(observed.width, np.int8)
    tiny = float(np.finfo(np.float32).tiny)
    activation = np.maximum(np.maximum(-observed.low, observed.high), tiny).astype(np.float64)
    weight = np.maximum(np.max([np.abs(each).max(axis=1) for each in weights], axis=0), tiny).astype(np.float64)
    octaves = exponent * np.log2(activation) - (1 - exponent) * np.log2(weight)
    steps = np.rint((octaves - np.median(octaves)) * STEPS_PER_OCTAVE)
    narrow: npt.NDArray[np.int8] = np.clip(steps, -MOST_STEPS, MOST_STEPS).astype(np.int8)
    return narrow


def _error(
    quantised: QuantisedInput,
    rows: Float32Array,
    weights: Sequence[Float32Array],
    exact: Sequence[Float32Array],
    powers: Sequence[float],
) -> float:
    scale, zero = activation_scale(quantised.low, quantised.high)
    gains = quantised.gain_array()
    divided = rows if gains is None else rows * np.reciprocal(gains)
    integers = np.clip(np.rint(divided / np.float32(scale)) + zero, 0, HIGHEST_UINT8) - zero
    total = 0.0
    for weight, expected, power in zip(weights, exact, powers, strict=True):
        scaled = weight if gains is None else weight * gains[:, None]
        scales = weight_scales(scaled)
        found = integers @ rounded_weight(scaled, scales).astype(np.float32) * (scales * np.float32(scale))
        total += float(((found - expected).astype(np.float64) ** 2).sum()) / power
    return total / len(weights)


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


_HEAD = (f"{CLASSIFIER}.", "head.")
"""How the names of a head's weights begin; the second is ModernBERT's layer in front of the classifier."""


def quantisable_inputs(path: Path) -> list[Observed]:
    """The inputs of the encoder's products, in the graph's order. The head stays in float32."""
    graph = onnx.load(str(path), load_external_data=False).graph
    shapes = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    found: dict[str, list[str]] = {}
    for node in graph.node:
        if node.op_type == "MatMul" and node.input[1] in shapes and not node.input[1].startswith(_HEAD):
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
