"""The float32 variant for ONNX Runtime's own CPU provider: padding only inside attention.

Everything that works token by token (embeddings, products, norms, GELU: nine tenths of the time) runs on the tokens of all
windows in a row. For attention they are gathered into windows, padded to the longest, and taken back afterwards, by index
arrays that are made here. Inputs: `input_ids`, `position_ids`, `slots` (the place of each token in the padded layout), all
`int32 [tokens]`; `rows int32 [batch, length]` (the token at each place; at padding the window's own first token, so that no
window's numbers reach another); `lengths int32 [batch]`. Outputs are `[tokens]`. Means take tokens from the padded layout,
with `owned float32 [batch, length]` as in padded.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from onnx import TensorProto

from enricher.worker.heads import TOKENS, Reads
from enricher.worker.inference.graph.onnx_file import MICROSOFT, OnnxWriter
from enricher.worker.inference.graph.padded import PaddedFloat32
from enricher.worker.inference.graph.variants import owned_weights, starts_in_a_row, weighted_sums

if TYPE_CHECKING:
    from collections.abc import Sequence

    from enricher.worker.inference.device.session import Feeds
    from enricher.worker.records import Window


@dataclass(frozen=True, slots=True)
class PackedFloat32(PaddedFloat32):
    """See the module. Implements `variants.Variant`."""

    name = "packed-fp32"
    token_dimensions: ClassVar[tuple[str, ...]] = ("tokens",)

    def declare_inputs(self, writer: OnnxWriter, reads: frozenset[Reads] = TOKENS) -> None:
        """The five inputs, and `owned` for means."""
        for name in ("input_ids", "position_ids", "slots"):
            writer.input(name, TensorProto.INT32, ["tokens"])
        writer.input("rows", TensorProto.INT32, ["batch", "length"])
        writer.input("lengths", TensorProto.INT32, ["batch"])
        if "mean" in reads:
            writer.input("owned", TensorProto.FLOAT, ["batch", "length"])

    def positions(self, writer: OnnxWriter, table: str) -> str:
        """A row for each token."""
        return writer.node("Gather", [table, "position_ids"], "positions")

    def attention(self, writer: OnnxWriter, projected: tuple[str, str, str], *, heads: int, output: str) -> str:
        """Pads, runs one fused operator, and removes the padding."""
        padded = [writer.node("Gather", [part, "rows"], f"{part}.padded") for part in projected]
        mixed = writer.node(
            "MultiHeadAttention", [*padded, "", "lengths"], f"{output}.padded", domain=MICROSOFT, num_heads=heads
        )
        flat = writer.node("Flatten", [mixed], f"{output}.flat", axis=2)
        return writer.node("Gather", [flat, "slots"], output)

    def first_tokens(self, writer: OnnxWriter, hidden: str) -> str:
        """The tokens at the first place of each row of `rows`."""
        firsts = writer.node(
            "Gather", ["rows", writer.constant("first_place", np.array(0, np.int64))], "firsts", axis=1
        )
        return writer.node("Gather", [hidden, firsts], "first")

    def owned_means(self, writer: OnnxWriter, hidden: str) -> str:
        """One product per window, padded."""
        return weighted_sums(writer, "owned", writer.node("Gather", [hidden, "rows"], "hidden.padded"), "means")

    def padded_tokens(self, windows: Sequence[Window]) -> int:
        """The real tokens: only attention is padded, a tenth of the work."""
        return sum([len(window.ids) for window in windows])

    def feeds(self, windows: Sequence[Window], pad_id: int, reads: frozenset[Reads] = TOKENS) -> Feeds:
        """The five arrays, and `owned` for means; no padding ids are needed."""
        del pad_id
        lengths = np.array([window.length_tokens for window in windows], np.int32)
        places = np.arange(lengths.max(), dtype=np.int32)
        real = places < lengths[:, None]
        starts = np.cumsum(lengths, dtype=np.int32) - lengths
        feeds: Feeds = {
            "input_ids": np.concatenate([window.ids for window in windows]),
            "position_ids": np.broadcast_to(places, real.shape)[real],
            "slots": np.flatnonzero(real).astype(np.int32),
            "rows": (starts[:, None] + np.where(real, places, 0)).astype(np.int32),
            "lengths": lengths,
        }
        return {**feeds, "owned": owned_weights(windows, len(places))} if "mean" in reads else feeds

    def starts(self, windows: Sequence[Window], shape: Sequence[int]) -> Sequence[int]:
        """Windows follow one another."""
        del shape
        return starts_in_a_row(windows)
