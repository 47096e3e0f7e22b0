"""The variants that OpenVINO runs: int8 with VNNI or AMX, bfloat16 with AMX or AVX512-BF16, and float32 on any x86-64.

All use the graph that padded.py builds, quantised for int8; OpenVINO computes it in the precision of the session. It
compiles each new shape and keeps the result: half a megabyte and 4 ms for the embedded model. So lengths are rounded up, by
each variant's rule. The number of windows is not: that would cost more than it saves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from enricher.worker.inference.device.openvino_session import openvino_problem
from enricher.worker.inference.device.processor import int8_problem
from enricher.worker.inference.graph.padded import PaddedFloat32
from enricher.worker.rules.windowing import LENGTH_STEP_TOKENS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from enricher.worker.inference.device.session import Runtime
    from enricher.worker.inference.graph.onnx_file import OnnxWriter
    from enricher.worker.records import Window


@dataclass(frozen=True, slots=True)
class OpenVinoFloat32(PaddedFloat32):
    """float32 by OpenVINO: a tenth to a quarter faster than ONNX Runtime. Implements `variants.Variant`."""

    name = "openvino-fp32"
    runtime: Runtime = "openvino-fp32"

    def problem(self) -> str | None:
        """Why not: OpenVINO is missing, or cannot compute in that precision on this processor."""
        return openvino_problem(self.precision)

    def positions(self, writer: OnnxWriter, table: str) -> str:
        """Like padded.py, with extra rows for padding, because rounding up may exceed the table."""
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
        """16 for every length, the fastest step with AMX.

        With smaller steps a window's scores depend on its batch, in the third decimal (AVX512, measured).
        """
        del length_tokens
        return LENGTH_STEP_TOKENS


@dataclass(frozen=True, slots=True)
class OpenVinoInt8(OpenVinoBfloat16):
    """Matrix products in int8, quantised by the model's recipe; everything else in bf16, or in fp32 without bf16 units.

    Scales are fixed when the model is prepared, so a window's labels do not depend on the other windows of its batch, as
    long as lengths are rounded like those of bf16 (scripts/tools/bench/model/README.md).
    Implements `variants.Variant`.
    """

    name = "openvino-int8"
    precision = "int8"
    quantised = True
    runtime: Runtime = "openvino-int8"

    def problem(self) -> str | None:
        """Why not: OpenVINO is missing, or the processor has no int8 products."""
        return openvino_problem("fp32") or int8_problem()
