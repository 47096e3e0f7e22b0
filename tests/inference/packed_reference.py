"""ONNX Runtime's fused operators in numpy, so that the packed graph runs where there is no GPU.

The graph that runs is the very one that was built; standard operators are onnx's own reference implementation, unless they
are here. Operands are of the graph's type, sums of products in float32, and results are rounded where the CUDA kernels of
ONNX Runtime 1.30 round them, which is more often than once: in skip norm after each sum (skip_layer_norm_impl.cu), in GELU
after each step (`_Gelu` in cu_inc/common.cuh), and in attention before the product with the values. The query's product is
rounded before its bias is added, which on CUDA is one Gemm: here it is worse.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from enricher.worker.inference.graph.graph_files import MICROSOFT

Array = npt.NDArray[Any]
Run = Callable[[list[str], dict[str, Array]], list[Array]]


def opened(path: Path) -> Run:
    """Load the model at `path`; returns what runs it on numpy."""
    # An operator is found by the name of its class.
    operators = [PackedMultiHeadAttention, SkipLayerNormalization, LayerNormalization, BiasGelu, MatMul]
    evaluator = ReferenceEvaluator(onnx.load(str(path)), new_ops=operators)
    return lambda outputs, feeds: [np.asarray(each) for each in evaluator.run(outputs, feeds)]


def run(path: Path, outputs: list[str], feeds: dict[str, Array]) -> list[Array]:
    """Run the model at `path` on numpy."""
    return opened(path)(outputs, feeds)


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
    return part.reshape(len(part), heads, -1).transpose(1, 0, 2)


def _attention(query: Array, key: Array, value: Array) -> Array:
    """`[heads, length, size]` -> `float32 [length, width]`. Fused kernels divide last, by a sum of what is not rounded."""
    kind = query.dtype
    query, key, value = (part.astype(np.float32) for part in (query, key, value))
    scores = query @ key.transpose(0, 2, 1) / math.sqrt(query.shape[-1])
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    mixed: Array = (powers.astype(kind).astype(np.float32) @ value) / powers.sum(-1, keepdims=True)
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
    """See `skip_norm`."""

    op_domain = MICROSOFT

    def _run(self, *inputs: Array, epsilon: float = 0.0) -> tuple[Array]:
        return (skip_norm(*inputs, epsilon=epsilon),)


class LayerNormalization(OpRun):
    """See `norm`."""

    op_domain = ""

    def _run(
        self, value: Array, scale: Array, shift: Array, axis: int = -1, epsilon: float = 0.0, stash_type: int = 1
    ) -> tuple[Array]:
        assert (axis, stash_type) == (-1, onnx.TensorProto.FLOAT)
        return (norm(value, scale, shift, epsilon=epsilon),)


class BiasGelu(OpRun):
    """See `bias_gelu`."""

    op_domain = MICROSOFT

    def _run(self, value: Array, bias: Array) -> tuple[Array]:
        return (bias_gelu(value, bias),)


class MatMul(OpRun):
    """As onnx's own, but half precision is summed in float32, as on CUDA (and not a hundred times slower)."""

    op_domain = ""

    def _run(self, left: Array, right: Array) -> tuple[Array]:
        return ((left.astype(np.float32) @ right.astype(np.float32)).astype(left.dtype),)


def skip_norm(value: Array, skip: Array, scale: Array, shift: Array, bias: Array, *, epsilon: float) -> Array:
    """The norm of value + bias + skip. Both sums are rounded."""
    return norm((value + bias) + skip, scale, shift, epsilon=epsilon)


def norm(total: Array, scale: Array, shift: Array, *, epsilon: float) -> Array:
    """The norm over the last axis: mean and mean square in float32, and one rounding at the end."""
    values = total.astype(np.float32)
    mean = values.mean(-1, keepdims=True)
    deviation = np.sqrt((values * values).mean(-1, keepdims=True) - mean * mean + np.float32(epsilon))
    normed: Array = scale.astype(np.float32) * (values - mean) / deviation + shift.astype(np.float32)
    return normed.astype(total.dtype)


def bias_gelu(value: Array, bias: Array) -> Array:
    """The exact GELU, by the error function; in half precision each step is rounded."""
    kind = value.dtype.type
    total = value + bias
    error = _erf((total * kind(math.sqrt(0.5))).astype(np.float32)).astype(kind)
    active: Array = total * kind(0.5) * (kind(1) + error)
    return active


def _erf(values: Array) -> Array:
    """Right to 1.5e-7 (Abramowitz and Stegun, 7.1.26)."""
    part = 1 / (1 + 0.3275911 * np.abs(values))
    terms = np.polyval([1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592, 0.0], part)
    of_each: Array = np.copysign(1 - terms * np.exp(-(values**2)), values)
    return of_each
