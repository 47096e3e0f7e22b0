"""The float16 variant for CUDA: no padding anywhere, the tokens of all windows in a row.

Inputs, all int32: `input_ids [tokens]`; `position_ids [tokens]`, counted from the window's first token; `cumulative_lengths
[windows + 1]`; `token_offset [windows, longest]`: the position of each token if windows were padded to `longest` and laid
end to end, first the positions of real tokens in order, then those of the padding. Outputs are `[tokens]`.

Attention is ONNX Runtime's PackedMultiHeadAttention over separate query, key and value without a bias. FlashAttention-2
takes those as they are; a packed projection or a bias would be copied first. The operator reads the number of windows and
`longest` from the *shape* of `token_offset`; only its unfused route reads the values (packed_multihead_attention.cc).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from onnx import TensorProto

from enricher.inference.device.cuda import cuda_problem
from enricher.inference.graph.onnx_file import MICROSOFT, OnnxWriter
from enricher.inference.graph.variants import starts_in_a_row

if TYPE_CHECKING:
    from collections.abc import Sequence

    from enricher.inference.device.session import Feeds, Runtime
    from enricher.records import Window

LONGEST_STEP_TOKENS = 64
"""`longest` is rounded up to a multiple of this, so that few sizes of workspace are allocated. It costs nothing:
FlashAttention splits windows into blocks of 64 or 128 queries, and a block beyond a window's end returns at once."""


@dataclass(frozen=True, slots=True)
class PackedFloat16:
    """See the module. Implements `variants.Variant`."""

    name = "packed-fp16"
    precision = "fp16"
    reduced = True
    quantised = False
    runtime: Runtime = "cuda"
    packs = True
    token_dimensions = ("tokens",)

    def problem(self) -> str | None:
        """CUDA does not work here."""
        return _cuda_problem()

    def declare_inputs(self, writer: OnnxWriter) -> None:
        """The four inputs."""
        writer.input("input_ids", TensorProto.INT32, ["tokens"])
        writer.input("position_ids", TensorProto.INT32, ["tokens"])
        writer.input("cumulative_lengths", TensorProto.INT32, ["windows_and_one"])
        writer.input("token_offset", TensorProto.INT32, ["windows", "longest"])

    def positions(self, writer: OnnxWriter, table: str) -> str:
        """A row for each token: `[tokens, width]`."""
        return writer.node("Gather", [table, "position_ids"], "positions")

    def attention(self, writer: OnnxWriter, projected: tuple[str, str, str], *, heads: int, output: str) -> str:
        """One fused operator."""
        inputs = [*projected, "", "token_offset", "cumulative_lengths"]
        return writer.node("PackedMultiHeadAttention", inputs, output, domain=MICROSOFT, num_heads=heads)

    def padded_tokens(self, windows: Sequence[Window]) -> int:
        """The real tokens: nothing is padded."""
        return sum(window.length_tokens for window in windows)

    def feeds(self, windows: Sequence[Window], pad_id: int) -> Feeds:
        """The four arrays; no padding ids are needed."""
        del pad_id
        lengths = np.array([window.length_tokens for window in windows], np.int32)
        longest = -(-int(lengths.max()) // LONGEST_STEP_TOKENS) * LONGEST_STEP_TOKENS
        places = np.arange(longest, dtype=np.int32)
        real = places < lengths[:, None]
        offset = np.concatenate([np.flatnonzero(real), np.flatnonzero(~real)])
        return {
            "input_ids": np.concatenate([window.ids for window in windows]),
            "position_ids": np.broadcast_to(places, real.shape)[real],
            "cumulative_lengths": np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32),
            "token_offset": offset.astype(np.int32).reshape(real.shape),
        }

    def starts(self, windows: Sequence[Window], shape: Sequence[int]) -> Sequence[int]:
        """Windows follow one another."""
        del shape
        return starts_in_a_row(windows)


@cache
def _cuda_problem() -> str | None:
    """Asked once per process, because it opens a session."""
    return cuda_problem()
