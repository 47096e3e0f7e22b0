"""Other ways to quantise than the package's: what the table compares, and no worker serves."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import onnx

from enricher.inference.graph.int8 import PaddedInt8, quantise

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_LAYER = re.compile(r"\.layer\.(\d+)\.")


@dataclass(frozen=True, slots=True)
class OtherInt8(PaddedInt8):
    """int8 with options. What differs from the package's variant is in the name, so that each has its own graph."""

    per_channel: bool = True
    """One scale per output channel of a weight, instead of one per weight."""
    exclude: tuple[str, ...] = ()
    """Products that stay in float32: parts of their names, such as `classifier` or `output.dense`."""
    last_layers_in_float32: int = 0

    @property
    def name(self) -> str:  # type: ignore[override]
        """`padded-int8` and the options."""
        parts = ["padded-int8", *([] if self.per_channel else ["per-tensor"]), *(f"no-{part}" for part in self.exclude)]
        return "-".join(
            [*parts, *([f"last-{self.last_layers_in_float32}-fp32"] if self.last_layers_in_float32 else [])]
        )

    def finish(self, folder: Path) -> None:
        """Quantise all products but those that stay in float32."""
        (path,) = folder.glob("*.onnx")
        graph = onnx.load(str(path), load_external_data=False).graph
        products = [node.name for node in graph.node if node.op_type == "MatMul"]
        quantise(folder, per_channel=self.per_channel, nodes_to_exclude=self._in_float32(products))

    def _in_float32(self, products: Sequence[str]) -> list[str]:
        layers = {name: int(found[1]) for name in products if (found := _LAYER.search(name))}
        first_kept = max(layers.values(), default=0) + 1 - self.last_layers_in_float32
        return [
            name
            for name in products
            if any(part in name for part in self.exclude) or layers.get(name, -1) >= first_kept
        ]
