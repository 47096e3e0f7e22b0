"""The variants whose windows are padded on the right to the longest, in all of the graph or only inside attention.

`PaddedFloat32`, for ONNX Runtime's own CPU and CUDA providers. Inputs: `input_ids int32 [batch, length]`, `lengths int32
[batch]` (real tokens). Outputs are `[batch, length]`; their values at padding are meaningless. Where a head reads means,
`owned float32 [batch, length]` too: one over the number of tokens that the window owns, at these tokens; `whole` likewise
for all of its tokens. `PaddedFloat16` is the same on CUDA, for attention that is not plain, and for models that are ONNX
already (external.py).

`PackedFloat32`, for ONNX Runtime's own CPU provider: padding only inside attention. Everything that works token by token
(embeddings, products, norms, GELU: nine tenths of the time) runs on the tokens of all windows in a row. For attention they
are gathered into windows, padded to the longest, and taken back afterwards, by index arrays that are made here. Inputs:
`input_ids`, `position_ids`, `slots` (the place of each token in the padded layout), all `int32 [tokens]`; `rows int32
[batch, length]` (the token at each place; at padding the window's own first token, so that no window's numbers reach
another); `lengths int32 [batch]`. Outputs are `[tokens]`. Means take tokens from the padded layout, with `owned`.

OpenVINO runs three variants: int8 with VNNI or AMX, bfloat16 with AMX or AVX512-BF16, and float32 on any x86-64. All three
use the padded graph, quantised for int8; OpenVINO computes it in the precision of the session. It compiles each new shape
and keeps the result: half a megabyte and 4 ms for the embedded model. So lengths are rounded up, by each variant's rule. The
number of windows is not: that would cost more than it saves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from onnx import TensorProto

from enricher.worker.heads import TOKENS, Reads
from enricher.worker.inference.checkpoint.families import EncoderConfig
from enricher.worker.inference.device.hardware import cuda_problem, int8_problem
from enricher.worker.inference.device.sessions import Feeds, Runtime, openvino_problem
from enricher.worker.inference.graph.graph_files import MICROSOFT, OnnxWriter
from enricher.worker.inference.graph.variants import (
    MEANS,
    Scored,
    mean_inputs,
    mean_weights,
    starts_in_a_row,
    weighted_sums,
)
from enricher.worker.records import Window
from enricher.worker.rules.windowing import LENGTH_STEP_TOKENS


@dataclass(frozen=True, slots=True)
class PaddedFloat32:
    """The padded float32 variant of the module's docstring. Implements `variants.Variant`."""

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
        for name in mean_inputs(reads):
            writer.input(name, TensorProto.FLOAT, self.token_dimensions)
        writer.node("Shape", ["input_ids"], "length", start=1, end=2)

    def positions(self, writer: OnnxWriter, table: str) -> str:
        """The first `length` rows, the same for every window: `[length, width]`."""
        start, axis = (writer.constant(name, np.array([0], np.int64)) for name in ("first_row", "row_axis"))
        return writer.node("Slice", [table, start, "length", axis], "positions")

    def attention(
        self, writer: OnnxWriter, projected: tuple[str, str, str], *, heads: int, output: str, scored: Scored | None
    ) -> str:
        """One fused operator; its one-dimensional mask is the number of real keys of each window."""
        query, key, value = projected
        inputs = [query, key, value, "", "lengths"]
        if scored is not None:
            query, key, bias = scored(query, key)
            inputs = [query, key, value, "", "lengths", bias]
        return writer.node("MultiHeadAttention", inputs, output, domain=MICROSOFT, num_heads=heads)

    def first_tokens(self, writer: OnnxWriter, hidden: str) -> str:
        """The first place of each row."""
        return writer.node("Gather", [hidden, writer.constant("first_place", np.array(0, np.int64))], "first", axis=1)

    def means(self, writer: OnnxWriter, hidden: str, reads: Reads) -> str:
        """One product per window."""
        return weighted_sums(writer, MEANS[reads], hidden, "means" if reads == "mean" else f"means.{reads}")

    def padded_tokens(self, windows: Sequence[Window]) -> int:
        """Windows x the length that they are padded to."""
        rows, length_tokens = self._shape(windows)
        return rows * length_tokens

    def feeds(self, windows: Sequence[Window], pad_id: int, reads: frozenset[Reads] = TOKENS) -> Feeds:
        """`input_ids` and `lengths`, both int32; weights for means."""
        lengths = np.array([window.length_tokens for window in windows], np.int32)
        ids = np.full(self._shape(windows), pad_id, np.int32)
        for row, window in zip(ids, windows, strict=True):
            row[: window.length_tokens] = window.ids
        feeds: Feeds = {"input_ids": ids, "lengths": lengths}
        return {**feeds, **mean_weights(windows, ids.shape[1], reads)}

    def _shape(self, windows: Sequence[Window]) -> tuple[int, int]:
        """The number of windows, and the length of the longest."""
        return len(windows), max(window.length_tokens for window in windows)

    def starts(self, windows: Sequence[Window], shape: Sequence[int]) -> Sequence[int]:
        """One row per window."""
        count, length_tokens = shape[:2]
        assert count == len(windows), "a row for each window"
        return range(0, count * length_tokens, length_tokens)


@dataclass(frozen=True, slots=True)
class PaddedFloat16(PaddedFloat32):
    """float16 for models that packed attention does not run. Implements `variants.Variant`."""

    name = "padded-fp16"
    precision = "fp16"
    reduced = True
    runtime: Runtime = "cuda"
    """`cpu` in tests: ONNX Runtime computes there in float32, with weights in float16."""

    def problem(self) -> str | None:
        """Why CUDA does not work here."""
        return cuda_problem() if self.runtime == "cuda" else None

    def why_unsuited(self, config: EncoderConfig) -> str | None:
        """The reason why not: plain attention has a faster variant."""
        return f"padded fp16 is not built for {config.model_type}" if config.plain_attention else None

    def means(self, writer: OnnxWriter, hidden: str, reads: Reads) -> str:
        """One product per window, in float32."""
        wide = "hidden.wide"
        if not writer.has(wide):
            writer.node("Cast", [hidden], wide, to=TensorProto.FLOAT)
        return PaddedFloat32.means(self, writer, wide, reads)


@dataclass(frozen=True, slots=True)
class PackedFloat32(PaddedFloat32):
    """The packed float32 variant of the module's docstring. Implements `variants.Variant`."""

    name = "packed-fp32"
    token_dimensions: ClassVar[tuple[str, ...]] = ("tokens",)

    def declare_inputs(self, writer: OnnxWriter, reads: frozenset[Reads] = TOKENS) -> None:
        """The five inputs, and weights for means."""
        for name in ("input_ids", "position_ids", "slots"):
            writer.input(name, TensorProto.INT32, ["tokens"])
        writer.input("rows", TensorProto.INT32, ["batch", "length"])
        writer.input("lengths", TensorProto.INT32, ["batch"])
        for name in mean_inputs(reads):
            writer.input(name, TensorProto.FLOAT, ["batch", "length"])

    def positions(self, writer: OnnxWriter, table: str) -> str:
        """A row for each token."""
        return writer.node("Gather", [table, "position_ids"], "positions")

    def attention(
        self, writer: OnnxWriter, projected: tuple[str, str, str], *, heads: int, output: str, scored: Scored | None
    ) -> str:
        """Pads, runs one fused operator, and removes the padding."""
        query, key, value = (writer.node("Gather", [part, "rows"], f"{part}.padded") for part in projected)
        mixed = PaddedFloat32.attention(
            self, writer, (query, key, value), heads=heads, output=f"{output}.padded", scored=scored
        )
        flat = writer.node("Flatten", [mixed], f"{output}.flat", axis=2)
        return writer.node("Gather", [flat, "slots"], output)

    def first_tokens(self, writer: OnnxWriter, hidden: str) -> str:
        """The tokens at the first place of each row of `rows`."""
        firsts = writer.node(
            "Gather", ["rows", writer.constant("first_place", np.array(0, np.int64))], "firsts", axis=1
        )
        return writer.node("Gather", [hidden, firsts], "first")

    def means(self, writer: OnnxWriter, hidden: str, reads: Reads) -> str:
        """One product per window, padded."""
        padded = "hidden.padded"
        if not writer.has(padded):
            writer.node("Gather", [hidden, "rows"], padded)
        return PaddedFloat32.means(self, writer, padded, reads)

    def padded_tokens(self, windows: Sequence[Window]) -> int:
        """The real tokens: only attention is padded, a tenth of the work."""
        return sum([len(window.ids) for window in windows])

    def feeds(self, windows: Sequence[Window], pad_id: int, reads: frozenset[Reads] = TOKENS) -> Feeds:
        """The five arrays, and weights for means; no padding ids are needed."""
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
        return {**feeds, **mean_weights(windows, len(places), reads)}

    def starts(self, windows: Sequence[Window], shape: Sequence[int]) -> Sequence[int]:
        """Windows follow one another."""
        del shape
        return starts_in_a_row(windows)


@dataclass(frozen=True, slots=True)
class OpenVinoFloat32(PaddedFloat32):
    """float32 by OpenVINO: a tenth to a quarter faster than ONNX Runtime. Implements `variants.Variant`."""

    name = "openvino-fp32"
    runtime: Runtime = "openvino-fp32"

    def problem(self) -> str | None:
        """The reason why not: OpenVINO is missing, or cannot compute in that precision on this processor."""
        return openvino_problem(self.precision)

    def positions(self, writer: OnnxWriter, table: str) -> str:
        """The first `length` rows, with extra rows for padding, because rounding up may exceed the table."""
        ends = writer.constant("rows_for_padding", np.array([0, 0, LENGTH_STEP_TOKENS - 1, 0], np.int64))
        return PaddedFloat32.positions(self, writer, writer.node("Pad", [table, ends], "positions.padded"))

    def step_tokens(self, length_tokens: int) -> int:
        """The step to which this length is rounded up: few shapes, and little padding of short windows."""
        return 4 if length_tokens < 64 else 8

    def _shape(self, windows: Sequence[Window]) -> tuple[int, int]:
        rows, longest = PaddedFloat32._shape(self, windows)  # noqa: SLF001  the base class; `super()` does not work with slots
        step = self.step_tokens(longest)
        return rows, -(-longest // step) * step


@dataclass(frozen=True, slots=True)
class OpenVinoBfloat16(OpenVinoFloat32):
    """bfloat16 by OpenVINO. Implements `variants.Variant`. Its graph is a copy of the float32 one."""

    name = "openvino-bf16"
    precision = "bf16"
    reduced = True
    runtime: Runtime = "openvino-bf16"

    def step_tokens(self, length_tokens: int) -> int:
        """The step is 16 for every length, the fastest with AMX.

        With smaller steps a window's scores depend on its batch, in the third decimal (AVX512, measured).
        """
        del length_tokens
        return LENGTH_STEP_TOKENS


@dataclass(frozen=True, slots=True)
class OpenVinoInt8(OpenVinoBfloat16):
    """Matrix products in int8, quantised by the model's recipe; everything else in bf16, or in fp32 without bf16 units.

    Scales are fixed when the model is prepared, so a window's labels do not depend on the other windows of its batch, as
    long as lengths are rounded like those of bf16 (scripts/tools/bench/README.md).
    Implements `variants.Variant`.
    """

    name = "openvino-int8"
    precision = "int8"
    quantised = True
    runtime: Runtime = "openvino-int8"

    def problem(self) -> str | None:
        """The reason why not: OpenVINO is missing, or the processor has no int8 products."""
        return openvino_problem("fp32") or int8_problem()
