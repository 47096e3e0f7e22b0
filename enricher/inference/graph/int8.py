"""The int8 variant for processors with VNNI or AMX: the padded graph, its matrix products quantised dynamically.

Weights are int8, one scale per output channel. Activations are uint8 with **one scale per product over the whole batch**,
which ONNX Runtime derives in every run from the largest and smallest value. So a window's labels depend, a little, on the
windows that share its batch and on what the model computes at padding; no setting prevents that. The gate's report says
how many labels change.
"""

from __future__ import annotations

import contextlib
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnx import TensorProto

from enricher.inference.graph.padded import PaddedFloat32

if TYPE_CHECKING:
    from collections.abc import Iterator

CPU_INFO = Path("/proc/cpuinfo")
INT8_FLAGS = frozenset({"avx512_vnni", "avx_vnni", "amx_int8"})
"""Without one of these, sums of uint8 x int8 saturate in 16 bits: wrong answers, and no faster."""


@dataclass(frozen=True, slots=True)
class PaddedInt8(PaddedFloat32):
    """See the module. Implements `variants.Variant`."""

    name = "padded-int8"
    precision = "int8"
    reduced = True

    def problem(self) -> str | None:
        """The processor has no int8 products, or the system does not say whether it has."""
        try:
            flags = set(CPU_INFO.read_text().split())
        except OSError:
            return "this system does not say whether its processor has VNNI"
        return None if flags & INT8_FLAGS else "the processor has neither VNNI nor AMX"

    def finish(self, folder: Path) -> None:
        """Quantise the built graph in place: takes seconds, and a few times the model's size in memory."""
        quantise(folder)


def quantise(folder: Path, **options: Any) -> None:  # noqa: ANN401  as quantize_dynamic takes them
    """Replace the graph in `folder` and its weights by quantised ones. `options` override those of `quantize_dynamic`."""
    from onnxruntime.quantization import QuantType, quantize_dynamic  # noqa: PLC0415  a fifth of a second

    (path,) = folder.glob("*.onnx")
    weights = [each for each in folder.iterdir() if each != path]
    aside = folder / "quantised"
    aside.mkdir()
    ours = {
        "op_types_to_quantize": ["MatMul"],
        "per_channel": True,
        "reduce_range": False,
        "weight_type": QuantType.QInt8,
        "use_external_data_format": True,
        # Shape inference does not know ONNX Runtime's fused operators; all of ours return floats.
        "extra_options": {"DefaultTensorType": TensorProto.FLOAT},
    }
    with _quiet():
        quantize_dynamic(path, aside / path.name, **(ours | options))
    for each in aside.iterdir():
        each.chmod(path.stat().st_mode)  # the quantiser writes for its own user only
        each.replace(folder / each.name)
    for each in weights:
        each.unlink()
    aside.rmdir()


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence its advice, on the root logger, to run a pre-processing that is meant for exported graphs."""
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)
