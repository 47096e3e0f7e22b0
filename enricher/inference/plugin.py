"""ONNX Runtime's OpenVINO plugin provider: whether it is here, what its processor can do, and the options of a session.

It is a library beside ONNX Runtime, registered once per process and never otherwise loaded. Sessions are opened by
device.py; which graph they run is openvino.py's.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import json
from typing import TYPE_CHECKING

import onnxruntime as ort

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PROVIDER = "OpenVINOExecutionProvider"
PACKAGE = "onnxruntime_ep_openvino"
_REGISTERED_AS = "enricher.openvino"


@functools.cache
def processor() -> ort.OrtEpDevice | None:
    """The plugin's view of this processor; None where the plugin is not installed, does not load, or offers none."""
    try:
        ort.register_execution_provider_library(_REGISTERED_AS, importlib.import_module(PACKAGE).get_library_path())
    except Exception:  # noqa: BLE001  it is a library of somebody else's: whatever it raises, it does not load
        return None
    return next((each for each in ort.get_ep_devices() if _is_plain_processor(each.ep_metadata)), None)


def installed() -> bool:
    """True where the plugin's package is there, whether or not it has use for this processor."""
    return importlib.util.find_spec(PACKAGE) is not None


def _is_plain_processor(metadata: Mapping[str, str]) -> bool:
    """The processor is listed again under OpenVINO's virtual devices (AUTO), which choose for themselves what runs."""
    return metadata.get("ov_device") == "CPU" and "ov_meta_device" not in metadata


def problem() -> str | None:
    """Why bf16 cannot run through the plugin here; None where it can."""
    device = processor()
    if device is None and not installed():
        return f"the OpenVINO plugin provider is not installed here ({PACKAGE.replace('_', '-')})"
    if device is None:
        # Seen with version 1.8.1 on an AMD EPYC with AVX512-BF16: it loads, and lists no device.
        return "the OpenVINO plugin provider takes no processor of this make, or does not load here"
    if "BF16" not in capabilities(device):
        return "the processor has no bf16 units (AMX or AVX512-BF16)"
    return None


def capabilities(device: ort.OrtEpDevice) -> Sequence[str]:
    """What OpenVINO says that the processor computes in, such as FP32 and BF16."""
    return str(device.ep_metadata.get("OPTIMIZATION_CAPABILITIES", "")).split()


def add_to(options: ort.SessionOptions, *, streams: int, threads: int) -> None:
    """Make `options` open a session on the plugin, in bf16 by name. `streams` runs go on at once."""
    configuration = {
        "INFERENCE_PRECISION_HINT": "bf16",
        "NUM_STREAMS": str(streams),
        "INFERENCE_NUM_THREADS": str(threads),
        # Pinned streams fall to half their rate as soon as anything else runs on the machine.
        "ENABLE_CPU_PINNING": "NO",
    }
    # The plugin leaves nodes that it does not know to the stock provider, which knows no bf16. Then opening must fail.
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    options.add_provider_for_devices([processor()], {"load_config": json.dumps({"CPU": configuration})})
