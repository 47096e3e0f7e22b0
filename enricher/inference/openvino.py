"""The forms that OpenVINO runs: bfloat16 on processors with AMX or AVX512-BF16, and float32 on any of x86-64.

Both have the graph that padded.py builds; what it is computed in is OpenVINO's to do. It prepares itself for each shape that
it has not seen, and keeps what it prepared: half a megabyte and 4 ms for the embedded model. So lengths are rounded up, as
each form says; the number of windows is not, which would cost more than it saves (scripts/model_benchmark/README.md).
How a model is opened there is openvino_session.py's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from enricher.inference import openvino_session
from enricher.inference.forms import LENGTH_STEP_TOKENS
from enricher.inference.padded import PaddedFloat32

if TYPE_CHECKING:
    from collections.abc import Sequence

    from enricher.inference.forms import Feeds, Runtime
    from enricher.inference.onnxfile import OnnxWriter
    from enricher.records import Window


@dataclass(frozen=True, slots=True)
class RoundedFloat32(PaddedFloat32):
    """float32 by OpenVINO: a tenth to a quarter faster than ONNX Runtime. Implements `forms.Form`."""

    runtime: Runtime = "openvino-fp32"

    @property
    def name(self) -> str:
        """`rounded-fp32`."""
        return "rounded-fp32"

    def problem(self) -> str | None:
        """OpenVINO is missing, or does not compute in that precision on this processor."""
        return openvino_session.problem(self.precision)

    def positions(self, writer: OnnxWriter, table: str) -> str:
        """As padded.py; a length may be rounded up beyond the table, so rows for padding are put behind it."""
        room = writer.constant("rows_for_padding", np.array([0, 0, LENGTH_STEP_TOKENS - 1, 0], np.int64))
        return PaddedFloat32.positions(self, writer, writer.node("Pad", [table, room], "positions.padded"))

    def padded_tokens(self, windows: Sequence[Window]) -> int:
        """Windows x the longest of them, rounded up."""
        rows, length_tokens = self._shape(windows)
        return rows * length_tokens

    def feeds(self, windows: Sequence[Window], pad_id: int) -> Feeds:
        """As padded.py, with more padding behind."""
        feeds = PaddedFloat32.feeds(self, windows, pad_id)
        ids = np.full(self._shape(windows), pad_id, np.int32)
        ids[:, : feeds["input_ids"].shape[1]] = feeds["input_ids"]
        return feeds | {"input_ids": ids}

    def step_tokens(self, length_tokens: int) -> int:
        """Lengths like this one are rounded up to a multiple of so many: few shapes, and little padding for short ones."""
        return 4 if length_tokens < 64 else 8

    def _shape(self, windows: Sequence[Window]) -> tuple[int, int]:
        longest = max(window.length_tokens for window in windows)
        step = self.step_tokens(longest)
        return len(windows), -(-longest // step) * step


@dataclass(frozen=True, slots=True)
class PaddedBfloat16(RoundedFloat32):
    """bfloat16 by OpenVINO. Implements `forms.Form`. Its graph is the float32 one under another name."""

    precision = "bf16"
    reduced = True
    runtime: Runtime = "openvino-bf16"

    @property
    def name(self) -> str:
        """`padded-bf16`."""
        return "padded-bf16"

    def step_tokens(self, length_tokens: int) -> int:
        """Of so many in any case. With AMX it is the fastest too.

        With less, scores change in the third decimal with what shares the batch (AVX512, measured).
        """
        del length_tokens
        return LENGTH_STEP_TOKENS
