"""Sessions: open models that threads call. Opens nothing: that is opening.py's job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Protocol

from onnxruntime.capi import onnxruntime_pybind11_state as ort_state

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

Device = Literal["cpu", "cuda"]
Feeds = dict[str, "npt.NDArray[Any]"]
"""Arrays by input name."""
Runtime = Literal["cpu", "cuda", "openvino-int8", "openvino-bf16", "openvino-fp32"]
"""The runtime of a graph: one of ONNX Runtime's own providers, or OpenVINO in one of its precisions."""

OPENVINO = "OpenVINO"
"""OpenVINO's name in metrics and reports, where others have the name of their execution provider in ONNX Runtime."""
PROVIDERS: dict[Runtime, str] = {
    "cpu": "CPUExecutionProvider",
    "cuda": "CUDAExecutionProvider",
    "openvino-int8": OPENVINO,
    "openvino-bf16": OPENVINO,
    "openvino-fp32": OPENVINO,
}

SESSION_ERRORS: tuple[type[Exception], ...] = (
    *(kind for kind in vars(ort_state).values() if isinstance(kind, type) and issubclass(kind, Exception)),
    RuntimeError,
    MemoryError,
)
"""The errors of a session. ONNX Runtime's own errors share no base class. A failed allocation may raise either of the last
two; OpenVINO raises only these two."""


class Session(Protocol):
    """An open model; any number of threads may call it."""

    def run(self, outputs: Sequence[str], feeds: Feeds, /) -> list[npt.NDArray[Any]]:
        """The named outputs, in that order. Blocks while the model runs. Raises one of SESSION_ERRORS."""
        ...
