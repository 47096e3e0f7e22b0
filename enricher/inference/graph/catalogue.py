"""The variants for each device, fastest first. Chooses none: that is the job of run/selection.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from enricher.errors import ModelError
from enricher.inference.graph.openvino import OpenVinoBfloat16, OpenVinoFloat32, OpenVinoInt8
from enricher.inference.graph.packed_cpu import PackedFloat32
from enricher.inference.graph.packed_cuda import PackedFloat16
from enricher.inference.graph.padded import PaddedFloat32

if TYPE_CHECKING:
    from collections.abc import Sequence

    from enricher.inference.device.session import Device
    from enricher.inference.graph.variants import Variant


def variants_for(device: Device) -> Sequence[Variant]:
    """Every variant for `device`, fastest first, even those that do not run here.

    Measured by `scripts/bench-model`, and int8 by `scripts/int8-table`; int8 is unmeasured on AMX.
    """
    if device == "cuda":
        return (PackedFloat16(), PaddedFloat32(runtime="cuda"))
    # The last is for models that are ONNX already, which only padded variants can run.
    return (OpenVinoInt8(), OpenVinoBfloat16(), OpenVinoFloat32(), PackedFloat32(), PaddedFloat32())


def variant_named(device: Device, precision: str, *, padded: bool = False) -> Variant:
    """The fastest variant for `device` of `precision` (fp32, fp16, bf16, int8) that runs here; else the fastest.

    `padded` leaves out the variants that cannot run a model that is ONNX already. Raises ModelError if none is left.
    """
    variants = [variant for variant in variants_for(device) if not padded or is_padded(variant)]
    if suitable := [variant for variant in variants if variant.precision == precision]:
        return next((variant for variant in suitable if variant.problem() is None), suitable[0])
    known = ", ".join(dict.fromkeys(variant.precision for variant in variants))
    raise ModelError(
        f"precision {precision} has no variant on {device}; there are {known}. Choose one of them, or auto."
    )


def is_padded(variant: Variant) -> bool:
    """True if windows are laid out as `[batch, length]`, which is what exported models take."""
    return tuple(variant.token_dimensions) == PaddedFloat32.token_dimensions
