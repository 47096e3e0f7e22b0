"""Which device runs the model, from the name in the settings. A device that is named and does not work is an error."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from enricher.distribution import install_command
from enricher.errors import ModelError
from enricher.worker.inference.device import cuda, driver
from enricher.worker.runtime.devices import DeviceName, parse_device

if TYPE_CHECKING:
    from enricher.worker.inference.device.session import Device

_NO_CUDA = (
    "device {name} was asked for, and ONNX Runtime cannot use CUDA here: {why}. Install the driver, `onnxruntime-gpu` "
    "instead of `onnxruntime`, and the CUDA libraries (`{install}`); or set the device "
    "to cpu."
)
_NO_SUCH_GPU = (
    "device {name} was asked for, and this process sees {count} GPU(s): {seen}. CUDA_VISIBLE_DEVICES may hide some."
)

_log = logging.getLogger(__name__)


def resolve_device(asked: str) -> Device:
    """The kind of device to use: `auto` takes CUDA where it works, `cuda` raises ModelError where it does not.

    `parse_device` gives the number of the GPU. Raises SettingsError for an unknown name.
    """
    device = parse_device(asked)
    if device.kind == "cpu":
        return "cpu"
    why_not = cuda.cuda_problem(device.index)
    if why_not is None:
        return "cuda"
    if device.kind == "cuda":
        raise ModelError(_no_cuda(device, why_not))
    _log.info("no CUDA (%s): using the CPU", why_not)
    return "cpu"


def _no_cuda(device: DeviceName, why_not: str) -> str:
    count = driver.gpu_count()
    if not 0 < count <= device.index:
        return _NO_CUDA.format(name=device, why=why_not, install=install_command("cuda"))
    return _NO_SUCH_GPU.format(name=device, count=count, seen=", ".join(f"cuda:{each}" for each in range(count)))
