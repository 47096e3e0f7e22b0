"""The recipe of an int8 graph, and its application to a built float32 graph. The workshop makes recipes.

A recipe has ranges and choices, but no weights. It is valid for the model and the graph builder that it names. Together they
determine the int8 graph completely: int8 weights, and uint8 values in front of the products that take these.

OpenVINO turns `QuantizeLinear -> DequantizeLinear -> MatMul` into an integer product. Values are divided by their gains in
front of that, in one kernel with the rounding (after GELU inside the product's own), and the rows of the weight were
multiplied by them.
"""

from __future__ import annotations

import base64
import hashlib
import mmap
import tempfile
from pathlib import Path
from typing import BinaryIO, Literal, Self

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from enricher.errors import ModelError
from enricher.worker.inference.graph.graph_files import append_weight
from enricher.worker.records import Float32Array

RECIPE_FILE = "int8.json"
"""The name of the recipe in a model's folder."""
SCHEMA_VERSION: Literal[1] = 1
STEPS_PER_OCTAVE = 8
"""Gains are powers of 2 ** (1 / 8): one byte each, and the loss by rounding to them is too small to measure."""
SMALLEST_RANGE = 255 * float(np.finfo(np.float32).tiny)
LARGEST_RANGE = 255 * float(np.finfo(np.float32).max)
"""The bounds of a range. Outside of them the scale, a 255th of the range in float32, would be 0 or infinite."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, protected_namespaces=())


class TextsFile(_Part):
    """The file that the texts come from."""

    name: str
    digest: str = Field(description="sha256 (hex) of the file.")
    number: int = Field(description="Texts in it.")


class TextsUsed(TextsFile):
    """The texts on which the ranges were calibrated."""

    windows: int = Field(description="Windows that were used, held-out ones included.")
    tokens: int = Field(description="Tokens in those windows.")


class QuantisedInput(_Part):
    """One value of the graph that becomes uint8, and the products with int8 weights that take it."""

    value: str = Field(description="Name of the value in the float32 graph.")
    products: tuple[str, ...] = Field(description="The products that take it: names of weights without `.weight`.")
    low: float = Field(le=0, description="Lowest value after gains that uint8 represents.")
    high: float = Field(gt=0, description="The highest.")
    clip: float = Field(description="Range over the largest value seen: 1 if nothing was clipped.")
    exponent: float = Field(description="SmoothQuant's migration strength; 0 if there are no gains.")
    gains: str = Field(
        pattern="^[A-Za-z0-9+/]*={0,2}$",
        description="Base64 of one int8 per channel, in eighths of a power of two; empty if all are 1.",
    )

    @field_validator("gains")
    @classmethod
    def _is_base64(cls, value: str) -> str:
        base64.b64decode(value, validate=True)  # its error is a ValueError
        return value

    @model_validator(mode="after")
    def _has_a_scale(self) -> Self:
        if not SMALLEST_RANGE <= self.high - self.low <= LARGEST_RANGE:
            message = f"no scale can represent values from {self.low} to {self.high}"
            raise ValueError(message)
        return self

    def gain_array(self) -> Float32Array | None:
        """The divisor of each channel before it is rounded, `float32 [channels]`; None if nothing is divided."""
        if not self.gains:
            return None
        steps = np.frombuffer(base64.b64decode(self.gains), np.int8)
        return np.exp2(steps.astype(np.float64) / STEPS_PER_OCTAVE).astype(np.float32)


class KeptProduct(_Part):
    """A product that is not quantised."""

    name: str
    reason: str


class Measured(_Part):
    """int8 compared with float32 on held-out windows, from which no ranges were taken."""

    windows: int
    tokens: int
    divergence: float = Field(description="Mean Kullback-Leibler divergence of the labels' probabilities, in nats.")
    equal_labels: float = Field(description="Share of tokens with the same label.")
    target: float = Field(description="The share of equal labels that was asked for.")

    @property
    def missed(self) -> str | None:
        """The target and what was reached, if that is less; None if the target was reached."""
        if self.equal_labels >= self.target:
            return None
        return f"calibration wanted {100 * self.target:.2f} % of labels, reached {100 * self.equal_labels:.2f} %"


class Recipe(_Part):
    """The whole recipe."""

    schema_version: Literal[1] = SCHEMA_VERSION
    model_digest: str = Field(description="sha256 (hex) of config, weights and tokenizer, as in every record.")
    builder_version: int = Field(description="Version of the graph builder.")
    seed: int
    texts: TextsUsed
    inputs: tuple[QuantisedInput, ...]
    kept: tuple[KeptProduct, ...] = Field(description="Products that stay in bf16 or float32, and why.")
    measured: Measured

    @property
    def digest(self) -> str:
        """sha256 (hex) of the recipe: equal digests make equal graphs of the same model."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()

    @property
    def products(self) -> tuple[str, ...]:
        """The names of all quantised products."""
        return tuple(product for each in self.inputs for product in each.products)

    def counts_for(self, model_digest: str, builder_version: int) -> bool:
        """True if it was made for this model and this builder."""
        return (self.model_digest, self.builder_version) == (model_digest, builder_version)


def encode_gains(steps: np.ndarray[tuple[int, ...], np.dtype[np.int8]]) -> str:
    """`QuantisedInput.gains` of `int8 [channels]`; empty if all are zero."""
    return base64.b64encode(steps.tobytes()).decode() if steps.any() else ""


def six_digits(value: float) -> float:
    """Round to six significant digits: later digits differ from processor to processor, and recipes must not."""
    return float(f"{value:.6g}")


def recipe_path(folder: Path) -> Path:
    """The path of a model's recipe."""
    return folder / RECIPE_FILE


def read_recipe(folder: Path) -> Recipe | None:
    """The recipe in a model's folder; None if there is none. Raises ModelError if it cannot be read."""
    path = recipe_path(folder)
    try:
        return Recipe.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValidationError) as error:
        raise ModelError(
            f"{path}: this int8 recipe cannot be read: {error}. "
            f"`enricher model prepare --precision int8 --calibrate FILE` makes another."
        ) from error


def write_recipe(folder: Path, recipe: Recipe) -> Path:
    """Write the recipe into a model's folder. Raises ModelError."""
    path = recipe_path(folder)
    try:
        path.write_text(recipe.model_dump_json(indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        message = f"the int8 recipe cannot be written: {error}. Make room for it, or choose another --out."
        raise ModelError(message) from error
    return path


HIGHEST_UINT8 = 255
HIGHEST_INT8 = 127
"""Weights are symmetric: -128 is not used."""


def quantise(folder: Path, recipe: Recipe) -> None:
    """Replace the float32 graph in `folder`, and its weights, by int8 ones. Holds one weight in memory at a time.

    Raises ModelError if the recipe is for another model or builder, and OSError if the folder cannot be written.
    """
    (path,) = folder.glob("*.onnx")
    with tempfile.TemporaryDirectory(prefix="int8-", dir=folder) as name:
        for written in write_int8(path, Path(name), recipe):
            replaced = folder / written.name
            written.chmod(replaced.stat().st_mode)
            written.replace(replaced)


def write_int8(path: Path, folder: Path, recipe: Recipe) -> tuple[Path, Path]:
    """Write the int8 graph of the float32 graph at `path`, and its weights, into another folder, under the same names."""
    model = onnx.load(str(path), load_external_data=False)
    _check(path, model, recipe)
    names = {_location(tensor) for tensor in model.graph.initializer} - {None}
    if len(names) != 1:
        raise ModelError(f"{path}: int8 graphs are made from graphs that were built here, with one file of weights.")
    weights = path.with_name(str(names.pop()))
    with (
        weights.open("rb") as old,
        mmap.mmap(old.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
        (folder / weights.name).open("wb") as new,
    ):
        _Rewriter(model.graph, mapped, new, weights.name).rewrite(recipe)
    (folder / path.name).write_bytes(model.SerializeToString())
    return folder / weights.name, folder / path.name


def activation_scale(low: float, high: float) -> tuple[float, int]:
    """Scale and zero point of uint8 for a range that contains 0."""
    scale = (high - low) / HIGHEST_UINT8
    return scale, int(np.clip(round(-low / scale), 0, HIGHEST_UINT8))


def weight_scales(weight: Float32Array) -> Float32Array:
    """`float32 [out]`: one symmetric int8 scale per output channel of `[in, out]`."""
    scales: Float32Array = np.maximum(np.abs(weight).max(axis=0), np.finfo(np.float32).tiny) / HIGHEST_INT8
    return scales


def rounded_weight(weight: Float32Array, scales: Float32Array) -> npt.NDArray[np.int8]:
    """`weight / scales` as int8."""
    rounded: npt.NDArray[np.int8] = np.clip(np.rint(weight / scales), -HIGHEST_INT8, HIGHEST_INT8).astype(np.int8)
    return rounded


class _Rewriter:
    """Replaces the products of one graph; copies its weights from `mapped` to `data`."""

    def __init__(self, graph: onnx.GraphProto, mapped: mmap.mmap, data: BinaryIO, data_name: str) -> None:
        self._graph = graph
        self._mapped = mapped
        self._data = data
        self._data_name = data_name
        self._tensors: list[TensorProto] = []
        self._before: dict[str, list[onnx.NodeProto]] = {}
        """New nodes by the name of the node before which they belong."""

    def rewrite(self, recipe: Recipe) -> None:
        """Quantise the products of `recipe`, and copy all other weights."""
        products = {node.input[1]: node for node in self._graph.node if node.op_type == "MatMul"}
        gains: dict[str, QuantisedInput] = {}
        for each in recipe.inputs:
            nodes = [products[f"{name}.weight"] for name in each.products]
            value = self._quantise_value(each, nodes[0].name)
            for node in nodes:
                gains[node.input[1]] = each
                node.input[0] = value
        for tensor in self._graph.initializer:
            if tensor.name in gains:
                self._quantise_weight(products[tensor.name], self._read(tensor), gains[tensor.name])
            elif _location(tensor) is None:
                self._tensors.append(tensor)
            else:
                self._append(tensor.name, self._read(tensor))
        self._replace_lists()

    def _quantise_value(self, quantised: QuantisedInput, before: str) -> str:
        """Add nodes before the node `before` that divide a value by its gains, and make it uint8 and float again.

        Returns the name of the new value.
        """
        scale, zero = activation_scale(quantised.low, quantised.high)
        gains = quantised.gain_array()
        value, name = quantised.value, f"{quantised.value}.uint8"
        nodes = self._before.setdefault(before, [])
        if gains is not None:
            factors = self._constant(f"{name}.factors", np.reciprocal(gains))
            value = f"{name}.divided"
            nodes.append(helper.make_node("Mul", [quantised.value, factors], [value], name=value))
        constants = [self._constant(f"{name}.scale", np.float32(scale)), self._constant(f"{name}.zero", np.uint8(zero))]
        nodes.append(helper.make_node("QuantizeLinear", [value, *constants], [name], name=name))
        nodes.append(helper.make_node("DequantizeLinear", [name, *constants], [f"{name}.read"], name=f"{name}.read"))
        return f"{name}.read"

    def _quantise_weight(self, node: onnx.NodeProto, weight: Float32Array, quantised: QuantisedInput) -> None:
        """Write a product's weight as int8 with a scale per output channel, and add the node that makes it float again."""
        gains = quantised.gain_array()
        scaled = weight if gains is None else weight * gains[:, None]
        scales = weight_scales(scaled)
        name = node.input[1]
        self._append(f"{name}.int8", rounded_weight(scaled, scales))
        inputs = [f"{name}.int8", self._constant(f"{name}.scale", scales)]
        self._before.setdefault(node.name, []).append(
            helper.make_node("DequantizeLinear", inputs, [f"{name}.read"], name=f"{name}.read", axis=1)
        )
        node.input[1] = f"{name}.read"

    def _append(self, name: str, value: npt.NDArray[np.generic]) -> None:
        self._tensors.append(append_weight(self._data, self._data_name, name, np.ascontiguousarray(value)))

    def _read(self, tensor: TensorProto) -> Float32Array:
        where = {entry.key: entry.value for entry in tensor.external_data}
        kind = helper.tensor_dtype_to_np_dtype(tensor.data_type)
        count = int(where["length"]) // kind.itemsize
        return (
            np.frombuffer(self._mapped, kind, count, int(where.get("offset", "0"))).reshape(tuple(tensor.dims)).copy()
        )

    def _constant(self, name: str, value: npt.NDArray[np.generic] | np.generic) -> str:
        self._tensors.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def _replace_lists(self) -> None:
        nodes = [each for node in self._graph.node for each in (*self._before.get(node.name, ()), node)]
        del self._graph.node[:], self._graph.initializer[:]
        self._graph.node.extend(nodes)
        self._graph.initializer.extend(self._tensors)


def _check(path: Path, model: onnx.ModelProto, recipe: Recipe) -> None:
    about = {each.key: each.value for each in model.metadata_props}
    if not recipe.counts_for(about.get("digest", ""), int(about.get("builder", "0"))):
        raise ModelError(
            f"{path}: the int8 recipe was made for another model or another version of the graph. "
            f"`enricher model prepare --precision int8 --calibrate FILE` makes one for this."
        )
    values = {node.input[1]: node.input[0] for node in model.graph.node if node.op_type == "MatMul"}
    widths = {tensor.name: tensor.dims[0] for tensor in model.graph.initializer if tensor.dims}
    for each in recipe.inputs:
        gains = each.gain_array()
        for weight in (f"{name}.weight" for name in each.products):
            if values.get(weight) != each.value or (gains is not None and len(gains) != widths[weight]):
                raise ModelError(
                    f"{path}: the int8 recipe is damaged: {weight} does not take {each.value} as it says. "
                    f"`enricher model prepare --precision int8 --calibrate FILE` makes another."
                )


def _location(tensor: TensorProto) -> str | None:
    """The name of the file with the tensor's values; None if they are in the model file."""
    if tensor.data_location != TensorProto.EXTERNAL:
        return None
    return {entry.key: str(entry.value) for entry in tensor.external_data}["location"]
