"""The variants for CUDA, float32 and float16: no padding anywhere, the tokens of all windows in a row.

Inputs, all int32: `input_ids [tokens]`; `position_ids [tokens]`, counted from the window's first token; `cumulative_lengths
[windows + 1]`; `token_offset [windows, longest]`: the position of each token if windows were padded to `longest` and laid
end to end, first the positions of real tokens in order, then those of the padding. Outputs are `[tokens]`.

Where a head reads means, tokens that a window owns are summed in pieces of `PIECE_TOKENS`, and pieces in windows, so that
short windows in a batch with a long one cost no memory. Inputs: `owned_tokens int32`, `owned float32 [pieces, PIECE_TOKENS]`
(the tokens of each piece; one over the number that its window owns), `owned_pieces int32`, `real_pieces float32 [windows,
most]` (the pieces of each window; 1 for each). Rows are filled up with places of the same window, with weight 0.

Attention is ONNX Runtime's PackedMultiHeadAttention over separate query, key and value without a bias. Fused kernels take
those as they are; a packed projection or a bias would be copied first. The operator reads the number of windows and
`longest` from the *shape* of `token_offset`; only its unfused route reads the values (packed_multihead_attention.cc).

Which kernel runs, in the source of ONNX Runtime 1.30 with `sdpa_kernel` = 19 (seen on sm90 only): float16 takes
FlashAttention from sm80 on and CUTLASS's memory-efficient attention before; float32 takes the latter at every length (with
that option its threshold of 256 tokens is 0). From sm80 on, it makes each float32 product of scores and values of three
TF32 ones (OpMultiplyAddFastF32), whatever `use_tf32` says: nearly float32's accuracy. All other products are cuBLAS's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from onnx import TensorProto

from enricher.worker.heads import TOKENS, Reads
from enricher.worker.inference.checkpoint.families import EncoderConfig
from enricher.worker.inference.device.hardware import cuda_problem
from enricher.worker.inference.device.sessions import Feeds, Runtime
from enricher.worker.inference.graph.graph_files import MICROSOFT, OnnxWriter
from enricher.worker.inference.graph.variants import Scored, owned_ranges, starts_in_a_row, weighted_sums
from enricher.worker.records import Window

LONGEST_STEP_TOKENS = 64
"""`longest` is rounded up to a multiple of this, so that few sizes of workspace are allocated. It costs nothing: fused
kernels split windows into blocks of 32 to 128 queries, and a block beyond a window's end returns at once."""
HEAD_STEP = 8
"""Fused kernels take heads whose size is a multiple of this."""
LARGEST_HEAD = 256
"""FlashAttention takes no larger heads."""
PIECE_TOKENS = 32
"""About the length of a headline; longer pieces would mostly hold zeros."""

_MEANS: tuple[tuple[str, str, Sequence[str | int]], ...] = (
    ("owned_tokens", "owned", ["pieces", PIECE_TOKENS]),
    ("owned_pieces", "real_pieces", ["windows", "most"]),
)
"""The inputs of means: places, their weights, and the shape of both."""


@dataclass(frozen=True, slots=True)
class PackedCudaFloat32:
    """The float32 variant of the module's docstring. Implements `variants.Variant`."""

    name = "packed-cuda-fp32"
    precision = "fp32"
    reduced = False
    quantised = False
    runtime: Runtime = "cuda"
    packs = True
    token_dimensions = ("tokens",)
    window_dimension = "windows"

    def problem(self) -> str | None:
        """Why CUDA does not work here."""
        return _cuda_problem()

    def why_unsuited(self, config: EncoderConfig) -> str | None:
        """The reason why not: no fused kernel takes attention heads of that size, or changed scores.

        The unfused kernel pads to `windows x longest`, and its scores take `windows x heads x longest^2` numbers twice,
        which no budget of tokens bounds: a long window among 400 short ones needs 13 GB where padded windows need 1.
        """
        if not config.plain_attention:
            return f"packed attention of {config.model_type} is not built for CUDA"
        size = config.hidden_size // config.heads
        if size % HEAD_STEP == 0 and size <= LARGEST_HEAD:
            return None
        return (
            f"its attention heads have size {size}, and packed attention is fused for multiples of {HEAD_STEP} up to "
            f"{LARGEST_HEAD} only"
        )

    def declare_inputs(self, writer: OnnxWriter, reads: frozenset[Reads] = TOKENS) -> None:
        """The four inputs, and four more for means."""
        writer.input("input_ids", TensorProto.INT32, ["tokens"])
        writer.input("position_ids", TensorProto.INT32, ["tokens"])
        writer.input("cumulative_lengths", TensorProto.INT32, ["windows_and_one"])
        writer.input("token_offset", TensorProto.INT32, ["windows", "longest"])
        if "mean" in reads:
            for tokens, weights, shape in _MEANS:
                writer.input(tokens, TensorProto.INT32, shape)
                writer.input(weights, TensorProto.FLOAT, shape)

    def positions(self, writer: OnnxWriter, table: str) -> str:
        """A row for each token: `[tokens, width]`."""
        return writer.node("Gather", [table, "position_ids"], "positions")

    def attention(
        self, writer: OnnxWriter, projected: tuple[str, str, str], *, heads: int, output: str, scored: Scored | None
    ) -> str:
        """One fused operator."""
        assert scored is None, "such architectures are unsuited"
        inputs = [*projected, "", "token_offset", "cumulative_lengths"]
        return writer.node("PackedMultiHeadAttention", inputs, output, domain=MICROSOFT, num_heads=heads)

    def first_tokens(self, writer: OnnxWriter, hidden: str) -> str:
        """Every cumulative length but the last is the place of a window's first token."""
        bounds = [
            writer.constant(f"first_{name}", np.array([place], np.int64)) for name, place in (("from", 0), ("to", -1))
        ]
        firsts = writer.node("Slice", ["cumulative_lengths", *bounds], "firsts")
        return writer.node("Gather", [hidden, firsts], "first")

    def means(self, writer: OnnxWriter, hidden: str, reads: Reads) -> str:
        """Sums over pieces, then over windows, in float32."""
        assert reads == "mean", "other means are read by architectures that are unsuited"
        values, last = hidden, "means"
        for (places, weights, _), output in zip(_MEANS, ("means.pieces", last), strict=True):
            taken = writer.node("Gather", [values, places], f"{places}.taken")
            if output != last:
                taken = writer.node("Cast", [taken], f"{taken}.float32", to=TensorProto.FLOAT)
            values = weighted_sums(writer, weights, taken, output)
        return values

    def padded_tokens(self, windows: Sequence[Window]) -> int:
        """The real tokens: nothing is padded."""
        return sum(window.length_tokens for window in windows)

    def feeds(self, windows: Sequence[Window], pad_id: int, reads: frozenset[Reads] = TOKENS) -> Feeds:
        """The four arrays, and four more for means; no padding ids are needed."""
        del pad_id
        lengths = np.array([window.length_tokens for window in windows], np.int32)
        longest = -(-int(lengths.max()) // LONGEST_STEP_TOKENS) * LONGEST_STEP_TOKENS
        places = np.arange(longest, dtype=np.int32)
        real = places < lengths[:, None]
        offset = np.concatenate([np.flatnonzero(real), np.flatnonzero(~real)])
        return {
            **(_means(windows) if "mean" in reads else {}),
            "input_ids": np.concatenate([window.ids for window in windows]),
            "position_ids": np.broadcast_to(places, real.shape)[real],
            "cumulative_lengths": np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32),
            "token_offset": offset.astype(np.int32).reshape(real.shape),
        }

    def starts(self, windows: Sequence[Window], shape: Sequence[int]) -> Sequence[int]:
        """Windows follow one another."""
        del shape
        return starts_in_a_row(windows)


@dataclass(frozen=True, slots=True)
class PackedFloat16(PackedCudaFloat32):
    """The float16 variant, with sums of products in float32. Implements `variants.Variant`."""

    name = "packed-fp16"
    precision = "fp16"
    reduced = True


@cache
def _cuda_problem() -> str | None:
    """The reason why CUDA does not work here, cached, because finding out opens a session; None if it works."""
    return cuda_problem()


def _means(windows: Sequence[Window]) -> Feeds:
    """The arrays of `_MEANS`. A window that owns nothing has one piece, with weight 0."""
    firsts = np.array(starts_in_a_row(windows), np.int32)
    starts, stops = owned_ranges(windows)
    owned = stops - starts
    pieces = np.maximum(-(-owned // PIECE_TOKENS), 1)
    window_of = np.repeat(np.arange(len(windows)), pieces)
    first_piece = np.cumsum(pieces) - pieces
    place_in_window = (np.arange(len(window_of)) - first_piece[window_of]) * PIECE_TOKENS
    places = place_in_window[:, None] + np.arange(PIECE_TOKENS)
    real = places < owned[window_of, None]
    slots = np.arange(pieces.max())
    real_pieces = slots < pieces[:, None]
    shares = (1 / np.maximum(owned, 1)).astype(np.float32)
    return {
        "owned_tokens": (firsts[window_of, None] + np.where(real, starts[window_of, None] + places, 0)).astype(
            np.int32
        ),
        "owned": real * shares[window_of, None],
        "owned_pieces": (first_piece[:, None] + np.where(real_pieces, slots, 0)).astype(np.int32),
        "real_pieces": real_pieces.astype(np.float32),
    }
