"""Which variants there are for a device, fastest first. A list, and how to look into it: choosing is selection.py's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from enricher.errors import ModelError
from enricher.inference.graph.int8 import PaddedInt8
from enricher.inference.graph.openvino import OpenVinoBfloat16, OpenVinoFloat32
from enricher.inference.graph.packed_cpu import PackedFloat32
from enricher.inference.graph.packed_cuda import PackedFloat16
from enricher.inference.graph.padded import PaddedFloat32

if TYPE_CHECKING:
    from collections.abc import Sequence

    from enricher.inference.device.session import Device
    from enricher.inference.graph.variants import Variant


def variants_for(device: Device) -> Sequence[Variant]:
    """Every variant for `device`, fastest first (scripts/tools/bench/model), whether or not this machine runs it."""
    if device == "cuda":
        return (PackedFloat16(), PaddedFloat32(runtime="cuda"))
    # The last is for models that are ONNX already: those run padded only.
    return (OpenVinoBfloat16(), PaddedInt8(), OpenVinoFloat32(), PackedFloat32(), PaddedFloat32())


def variant_named(device: Device, precision: str, *, padded: bool = False) -> Variant:
    """The fastest variant for `device` of `precision` (fp32, fp16, bf16, int8) that runs here; else the fastest.

    `padded` leaves out all that a model which is ONNX already cannot take. Raises ModelError for an unknown precision.
    """
    variants = [variant for variant in variants_for(device) if not padded or is_padded(variant)]
    if suitable := [variant for variant in variants if variant.precision == precision]:
        return next((variant for variant in suitable if variant.problem() is None), suitable[0])
    known = ", ".join(dict.fromkeys(variant.precision for variant in variants))
    raise ModelError(
        f"precision {precision} has no variant on {device}; there are {known}. Choose one of them, or auto."
    )


def is_padded(variant: Variant) -> bool:
    """True for a variant that lays windows out as `[batch, length]`, as exported models take them."""
    return tuple(variant.token_dimensions) == PaddedFloat32.token_dimensions
