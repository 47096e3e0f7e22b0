"""The variants that OpenVINO runs: bfloat16 on processors with AMX or AVX512-BF16, and float32 on any of x86-64.

Both have the graph that padded.py builds; what it is computed in is OpenVINO's to do. It prepares itself for each shape that
it has not seen, and keeps what it prepared: half a megabyte and 4 ms for the embedded model. So lengths are rounded up, as
each variant says; the number of windows is not, which would cost more than it saves (scripts/tools/bench/model/README.md).
How a model is opened there is openvino_session.py's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from enricher.core.windowing import LENGTH_STEP_TOKENS
from enricher.inference.device.openvino_session import openvino_problem
from enricher.inference.graph.padded import PaddedFloat32

if TYPE_CHECKING:
    from collections.abc import Sequence

    from enricher.inference.device.session import Runtime
    from enricher.inference.graph.onnx_file import OnnxWriter
    from enricher.records import Window


@dataclass(frozen=True, slots=True)
class OpenVinoFloat32(PaddedFloat32):
    """float32 by OpenVINO: a tenth to a quarter faster than ONNX Runtime. Implements `variants.Variant`."""

    runtime: Runtime = "openvino-fp32"

    @property
    def name(self) -> str:
        """`openvino-fp32`."""
        return "openvino-fp32"

    def problem(self) -> str | None:
        """OpenVINO is missing, or does not compute in that precision on this processor."""
        return openvino_problem(self.precision)

    def positions(self, writer: OnnxWriter, table: str) -> str:
        """As padded.py; a length may be rounded up beyond the table, so rows for padding are put behind it."""
        room = writer.constant("rows_for_padding", np.array([0, 0, LENGTH_STEP_TOKENS - 1, 0], np.int64))
        return PaddedFloat32.positions(self, writer, writer.node("Pad", [table, room], "positions.padded"))

    def step_tokens(self, length_tokens: int) -> int:
        """Lengths like this one are rounded up to a multiple of so many: few shapes, and little padding for short ones."""
        return 4 if length_tokens < 64 else 8

    def _shape(self, windows: Sequence[Window]) -> tuple[int, int]:
        rows, longest = PaddedFloat32._shape(self, windows)  # noqa: SLF001  its own base; slots leave `super()` no class
        step = self.step_tokens(longest)
        return rows, -(-longest // step) * step


@dataclass(frozen=True, slots=True)
class OpenVinoBfloat16(OpenVinoFloat32):
    """bfloat16 by OpenVINO. Implements `variants.Variant`. Its graph is the float32 one under another name."""

    precision = "bf16"
    reduced = True
    runtime: Runtime = "openvino-bf16"

    @property
    def name(self) -> str:
        """`openvino-bf16`."""
        return "openvino-bf16"

    def step_tokens(self, length_tokens: int) -> int:
        """Of so many in any case. With AMX it is the fastest too.

        With less, scores change in the third decimal with what shares the batch (AVX512, measured).
        """
        del length_tokens
        return LENGTH_STEP_TOKENS
