"""The variants for each device, fastest first. run/selection.py chooses one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from enricher.errors import ModelError
from enricher.worker.inference.graph.openvino import OpenVinoBfloat16, OpenVinoFloat32, OpenVinoInt8
from enricher.worker.inference.graph.packed_cpu import PackedFloat32
from enricher.worker.inference.graph.packed_cuda import PackedCudaFloat32, PackedFloat16
from enricher.worker.inference.graph.padded import PaddedFloat32

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from enricher.worker.inference.device.session import Device
    from enricher.worker.inference.graph.variants import Variant


def variants_for(device: Device) -> Sequence[Variant]:
    """Every variant for `device`, fastest first, including those that do not run on this machine.

    The order was measured by `scripts/bench model`; int8 is not measured on AMX.
    """
    # The last one runs models that are ONNX already, which need a padded variant, and models that no packed variant takes.
    if device == "cuda":
        return (PackedFloat16(), PackedCudaFloat32(), PaddedFloat32(runtime="cuda"))
    return (OpenVinoInt8(), OpenVinoBfloat16(), OpenVinoFloat32(), PackedFloat32(), PaddedFloat32())


def variant_named(
    device: Device, precision: str, problem: Callable[[Variant], str | None] = lambda variant: variant.problem()
) -> Variant:
    """The fastest variant for `device` of `precision` (fp32, fp16, bf16, int8) without a `problem`; else the fastest.

    Raises ModelError if there is no variant of that precision.
    """
    variants = variants_for(device)
    if suitable := [variant for variant in variants if variant.precision == precision]:
        return next((variant for variant in suitable if problem(variant) is None), suitable[0])
    known = ", ".join(dict.fromkeys(variant.precision for variant in variants))
    raise ModelError(
        f"precision {precision} has no variant on {device}; there are {known}. Choose one of them, or auto."
    )
