"""ONNX Runtime's fused operators in numpy, so that the packed graph runs where there is no GPU.

The graph that runs is the very one that was built; standard operators are onnx's own reference implementation.
Accuracy is that of the CUDA kernels: operands of the graph's type, sums in float32, each result rounded once to its type.
Skip norm is here in two ways: as it is computed now, and as it was in older releases of ONNX Runtime, its sums of the
graph's type too (skip_layer_norm_impl.cu).
"""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from enricher.inference.graph.onnx_file import MICROSOFT

Array = npt.NDArray[Any]


def run(path: Path, outputs: list[str], feeds: dict[str, Array], *, strict_norm: bool = True) -> list[Array]:
    """Run the model at `path` on numpy; with `strict_norm=False` the sums of skip norm are rounded at every step."""
    # An operator is found by the name of its class.
    loose = type(SkipLayerNormalization.__name__, (LooseNorm,), {})
    operators = [PackedMultiHeadAttention, SkipLayerNormalization if strict_norm else loose, BiasGelu, MatMul]
    evaluator = ReferenceEvaluator(onnx.load(str(path)), new_ops=operators)
    return [np.asarray(each) for each in evaluator.run(outputs, feeds)]


def attention_by_lengths(query: Array, key: Array, value: Array, cumulative: Array, heads: int) -> Array:
    """What the FlashAttention route does: only the cumulative lengths say where a window begins and ends."""
    parts = [
        _attention(*(_heads(part[start:stop], heads) for part in (query, key, value)))
        for start, stop in pairwise(cumulative)
    ]
    return np.concatenate(parts)


def attention_by_offsets(query: Array, key: Array, value: Array, offset: Array, cumulative: Array, heads: int) -> Array:
    """What the unfused route does: tokens are moved to their places in padded windows, and taken back afterwards."""
    (windows, longest), places = offset.shape, offset.ravel()[: len(query)]
    out = np.empty_like(query)
    padded = np.full((3, windows * longest, query.shape[1]), np.nan, query.dtype)
    padded[:, places] = query, key, value
    for index, length in enumerate(np.diff(cumulative)):
        real = slice(index * longest, index * longest + int(length))
        mixed = np.full((longest, query.shape[1]), np.nan, query.dtype)
        mixed[:length] = _attention(*(_heads(part[real], heads) for part in padded))
        mine = places // longest == index
        out[mine] = mixed[places[mine] % longest]
    return out


def _heads(part: Array, heads: int) -> Array:
    return part.reshape(len(part), heads, -1).transpose(1, 0, 2).astype(np.float32)


def _attention(query: Array, key: Array, value: Array) -> Array:
    """`[heads, length, size]` -> `[length, width]`."""
    scores = query @ key.transpose(0, 2, 1) / math.sqrt(query.shape[-1])
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    mixed: Array = (powers / powers.sum(-1, keepdims=True)) @ value
    return mixed.transpose(1, 0, 2).reshape(mixed.shape[1], -1)


class PackedMultiHeadAttention(OpRun):
    """Separate query, key and value; both routes, which must agree."""

    op_domain = MICROSOFT

    def _run(
        self, query: Array, key: Array, value: Array, bias: Array | None, *rest: Array, num_heads: int = 0
    ) -> tuple[Array]:
        assert bias is None, "a bias takes it off the FlashAttention route's short way"
        assert query.ndim == 2
        assert query.shape == key.shape == value.shape
        offset, cumulative = rest
        assert {np.dtype(np.int32)} == {offset.dtype, cumulative.dtype}
        assert offset.ndim == 2
        assert cumulative.shape == (len(offset) + 1,)
        flash = attention_by_lengths(query, key, value, cumulative, num_heads)
        unfused = attention_by_offsets(query, key, value, offset, cumulative, num_heads)
        np.testing.assert_allclose(flash, unfused.astype(np.float32), rtol=2e-3, atol=1e-3)
        return (flash.astype(query.dtype),)


class SkipLayerNormalization(OpRun):
    """Norm of input + skip + bias."""

    op_domain = MICROSOFT

    def _run(self, *inputs: Array, epsilon: float = 0.0) -> tuple[Array]:
        value, skip, scale, shift, bias = (each.astype(np.float32) for each in inputs)
        total = value + skip + bias
        centred = total - total.mean(-1, keepdims=True)
        normed = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + epsilon) * scale + shift
        return (normed.astype(inputs[0].dtype),)


class LooseNorm(OpRun):
    """Skip norm as it was in older releases: mean and mean square in the graph's type, by fours and then by pairs."""

    op_domain = MICROSOFT

    def _run(self, *inputs: Array, epsilon: float = 0.0) -> tuple[Array]:
        value, skip, scale, shift, bias = inputs
        kind = value.dtype.type
        total = (value + bias) + skip
        part = total * kind(1 / total.shape[-1])
        mean, square = _sum_in_type(part), _sum_in_type(part * total)
        deviation = np.sqrt((square - mean * mean).astype(np.float32) + np.float32(kind(epsilon)))
        return ((scale * (total - mean) * (1 / deviation).astype(kind) + shift).astype(kind),)


class BiasGelu(OpRun):
    """The exact GELU, by the error function."""

    op_domain = MICROSOFT

    def _run(self, value: Array, bias: Array) -> tuple[Array]:
        total = value.astype(np.float32) + bias.astype(np.float32)
        return ((0.5 * total * (1 + _erf(total / math.sqrt(2)))).astype(value.dtype),)


class MatMul(OpRun):
    """As onnx's own, but half precision is summed in float32, as on CUDA (and not a hundred times slower)."""

    op_domain = ""

    def _run(self, left: Array, right: Array) -> tuple[Array]:
        return ((left.astype(np.float32) @ right.astype(np.float32)).astype(left.dtype),)


def _sum_in_type(values: Array) -> Array:
    """Over the last axis, kept; every intermediate sum is rounded to the type."""
    width = values.shape[-1]
    padding = (1 << (width - 1).bit_length()) - width
    parts = np.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, padding)])
    parts = parts.reshape(*parts.shape[:-1], -1, min(4, parts.shape[-1]))
    sums = parts[..., 0]
    for index in range(1, parts.shape[-1]):
        sums = sums + parts[..., index]
    while sums.shape[-1] > 1:
        half = sums.shape[-1] // 2
        sums = sums[..., :half] + sums[..., half:]
    return sums


def _erf(values: Array) -> Array:
    """Right to 1.5e-7 (Abramowitz and Stegun, 7.1.26)."""
    part = 1 / (1 + 0.3275911 * np.abs(values))
    terms = np.polyval([1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592, 0.0], part)
    of_each: Array = np.copysign(1 - terms * np.exp(-(values**2)), values)
    return of_each
