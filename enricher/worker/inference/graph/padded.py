"""The float32 variant for ONNX Runtime's own CPU and CUDA providers: windows padded on the right to the longest.

Inputs: `input_ids int32 [batch, length]`, `lengths int32 [batch]` (real tokens). Outputs are `[batch, length]`; their
values at padding are meaningless. Where a head reads means, `owned float32 [batch, length]` too: one over the number of
tokens that the window owns, at these tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from onnx import TensorProto

from enricher.worker.heads import TOKENS, Reads
from enricher.worker.inference.graph.onnx_file import MICROSOFT, OnnxWriter
from enricher.worker.inference.graph.variants import owned_weights, weighted_sums

if TYPE_CHECKING:
    from collections.abc import Sequence

    from enricher.worker.inference.checkpoint.configuration import EncoderConfig
    from enricher.worker.inference.device.session import Feeds, Runtime
    from enricher.worker.records import Window


@dataclass(frozen=True, slots=True)
class PaddedFloat32:
    """See the module. Implements `variants.Variant`."""

    name = "padded-fp32"
    precision = "fp32"
    reduced = False
    quantised = False
    runtime: Runtime = "cpu"
    """`cuda` for the same variant on a GPU. Nothing else differs, so both share a graph."""
    packs: ClassVar[bool] = False
    token_dimensions: ClassVar[tuple[str, ...]] = ("batch", "length")
    window_dimension: ClassVar[str] = "batch"

    def problem(self) -> str | None:
        """Return None: it runs wherever ONNX Runtime runs."""
        return None

    def why_unsuited(self, config: EncoderConfig) -> str | None:
        """Return None: it runs every model that we build."""
        del config
        return None

    def declare_inputs(self, writer: OnnxWriter, reads: frozenset[Reads] = TOKENS) -> None:
        """The inputs, and the length to which positions are cut."""
        writer.input("input_ids", TensorProto.INT32, self.token_dimensions)
        writer.input("lengths", TensorProto.INT32, ["batch"])
        if "mean" in reads:
            writer.input("owned", TensorProto.FLOAT, self.token_dimensions)
        writer.node("Shape", ["input_ids"], "length", start=1, end=2)

    def positions(self, writer: OnnxWriter, table: str) -> str:
        """The first `length` rows, the same for every window: `[length, width]`."""
        start, axis = (writer.constant(name, np.array([0], np.int64)) for name in ("first_row", "row_axis"))
        return writer.node("Slice", [table, start, "length", axis], "positions")

    def attention(self, writer: OnnxWriter, projected: tuple[str, str, str], *, heads: int, output: str) -> str:
        """One fused operator; its one-dimensional mask is the number of real keys of each window."""
        inputs = [*projected, "", "lengths"]
        return writer.node("MultiHeadAttention", inputs, output, domain=MICROSOFT, num_heads=heads)

    def first_tokens(self, writer: OnnxWriter, hidden: str) -> str:
        """The first place of each row."""
        return writer.node("Gather", [hidden, writer.constant("first_place", np.array(0, np.int64))], "first", axis=1)

    def owned_means(self, writer: OnnxWriter, hidden: str) -> str:
        """One product per window."""
        return weighted_sums(writer, "owned", hidden, "means")

    def padded_tokens(self, windows: Sequence[Window]) -> int:
        """Windows x the length that they are padded to."""
        rows, length_tokens = self._shape(windows)
        return rows * length_tokens

    def feeds(self, windows: Sequence[Window], pad_id: int, reads: frozenset[Reads] = TOKENS) -> Feeds:
        """`input_ids` and `lengths`, both int32; `owned` for means."""
        lengths = np.array([window.length_tokens for window in windows], np.int32)
        ids = np.full(self._shape(windows), pad_id, np.int32)
        for row, window in zip(ids, windows, strict=True):
            row[: window.length_tokens] = window.ids
        feeds: Feeds = {"input_ids": ids, "lengths": lengths}
        return {**feeds, "owned": owned_weights(windows, ids.shape[1])} if "mean" in reads else feeds

    def _shape(self, windows: Sequence[Window]) -> tuple[int, int]:
        """The number of windows, and the length of the longest."""
        return len(windows), max(window.length_tokens for window in windows)

    def starts(self, windows: Sequence[Window], shape: Sequence[int]) -> Sequence[int]:
        """One row per window."""
        count, length_tokens = shape[:2]
        assert count == len(windows), "a row for each window"
        return range(0, count * length_tokens, length_tokens)
