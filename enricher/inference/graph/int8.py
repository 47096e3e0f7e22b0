"""The int8 variant for processors with VNNI or AMX: the padded graph, its matrix products quantised dynamically.

Weights are int8, one scale per output channel. Activations are uint8 with **one scale per product over the whole batch**,
which ONNX Runtime finds at every run from the largest and smallest value in it. So a window's labels depend, a little,
on which windows share its batch and on what the model computes at padding: int8 is not invariant to the composition of a
batch, and no setting makes it so. How many labels that changes is in the gate's report.
"""

from __future__ import annotations

import contextlib
import logging
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import onnx
from onnx import TensorProto

from enricher.inference.graph.padded import PaddedFloat32

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

CPU_INFO = Path("/proc/cpuinfo")
INT8_FLAGS = frozenset({"avx512_vnni", "avx_vnni", "amx_int8"})
"""Without one of these, sums of uint8 x int8 saturate in 16 bits: wrong answers, and no faster."""
_LAYER = re.compile(r"\.layer\.(\d+)\.")


@dataclass(frozen=True, slots=True)
class PaddedInt8(PaddedFloat32):
    """See the module. Implements `variants.Variant`. What is not the default is in its name, for the gate's table."""

    precision = "int8"
    reduced = True
    per_channel: bool = True
    """One scale per output channel of a weight, instead of one per weight."""
    exclude: tuple[str, ...] = ()
    """Products that stay in float32: parts of their names, such as `classifier` or `output.dense`."""
    last_layers_in_float32: int = 0
    """How many layers, counted from the last, stay in float32."""

    @property
    def name(self) -> str:
        """`padded-int8`, and what differs from the default."""
        parts = ["padded-int8", *([] if self.per_channel else ["per-tensor"]), *(f"no-{part}" for part in self.exclude)]
        return "-".join(
            [*parts, *([f"last-{self.last_layers_in_float32}-fp32"] if self.last_layers_in_float32 else [])]
        )

    def problem(self) -> str | None:
        """The processor has no int8 products, or the system does not say which it has."""
        try:
            flags = set(CPU_INFO.read_text().split())
        except OSError:
            return "this system does not say whether its processor has VNNI"
        return None if flags & INT8_FLAGS else "the processor has neither VNNI nor AMX"

    def finish(self, folder: Path) -> None:
        """Quantise the built graph in place: seconds, and a few times the model's size in memory."""
        from onnxruntime.quantization import QuantType, quantize_dynamic  # noqa: PLC0415  a fifth of a second

        (path,) = folder.glob("*.onnx")
        weights = [each for each in folder.iterdir() if each != path]
        kept = self._in_float32([node.name for node in _products(path)])
        aside = folder / "quantised"
        aside.mkdir()
        with _quiet():
            quantize_dynamic(
                path,
                aside / path.name,
                op_types_to_quantize=["MatMul"],
                per_channel=self.per_channel,
                reduce_range=False,
                weight_type=QuantType.QInt8,
                nodes_to_exclude=kept,
                use_external_data_format=True,
                # Shape inference does not know ONNX Runtime's fused operators; all of ours give floats.
                extra_options={"DefaultTensorType": TensorProto.FLOAT},
            )
        for each in aside.iterdir():
            each.chmod(path.stat().st_mode)  # the quantiser writes for its own user only
            each.replace(folder / each.name)
        for each in weights:
            each.unlink()
        aside.rmdir()

    def _in_float32(self, products: Sequence[str]) -> list[str]:
        """The names of the products that are not quantised."""
        layers = {name: int(found[1]) for name in products if (found := _LAYER.search(name))}
        first_kept = max(layers.values(), default=0) + 1 - self.last_layers_in_float32
        return [
            name
            for name in products
            if any(part in name for part in self.exclude) or layers.get(name, -1) >= first_kept
        ]


def _products(path: Path) -> list[onnx.NodeProto]:
    graph = onnx.load(str(path), load_external_data=False).graph
    return [node for node in graph.node if node.op_type == "MatMul"]


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """It advises, on the root logger, to run its pre-processing, which is for exported graphs."""
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)
