"""Which forms there are for a device, fastest first. A list, and how to look into it: choosing is selection.py's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from enricher.errors import ModelError
from enricher.inference.graph.int8 import PaddedInt8
from enricher.inference.graph.openvino import PaddedBfloat16, RoundedFloat32
from enricher.inference.graph.packed_cpu import GatheredFloat32
from enricher.inference.graph.packed_cuda import PackedFloat16
from enricher.inference.graph.padded import PaddedFloat32

if TYPE_CHECKING:
    from collections.abc import Sequence

    from enricher.inference.graph.variants import Form
    from enricher.inference.run.device import Device


def forms_for(device: Device) -> Sequence[Form]:
    """Every form for `device`, fastest first (scripts/tools/bench/model/README.md), whether or not this machine runs it."""
    if device == "cuda":
        return (PackedFloat16(), PaddedFloat32(runtime="cuda"))
    # The last is for models that are ONNX already: those run padded only.
    return (PaddedBfloat16(), PaddedInt8(), RoundedFloat32(), GatheredFloat32(), PaddedFloat32())


def form_named(device: Device, precision: str, *, padded: bool = False) -> Form:
    """The fastest form for `device` that computes in `precision` (fp32, fp16, bf16, int8) and runs here; else the fastest.

    `padded` leaves out all that a model which is ONNX already cannot take. Raises ModelError for a precision without a form.
    """
    forms = [form for form in forms_for(device) if not padded or is_padded(form)]
    if suitable := [form for form in forms if form.precision == precision]:
        return next((form for form in suitable if form.problem() is None), suitable[0])
    known = ", ".join(dict.fromkeys(form.precision for form in forms))
    raise ModelError(f"precision {precision} has no form on {device}; there are {known}. Choose one of them, or auto.")


def is_padded(form: Form) -> bool:
    """True for a form that lays windows out as `[batch, length]`, as exported models take them."""
    return tuple(form.token_dimensions) == PaddedFloat32.token_dimensions
