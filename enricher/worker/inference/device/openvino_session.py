"""OpenVINO: whether it can run here, and a session on it.

It is called through its own Python package. Intel's plugin provider for ONNX Runtime contains the same library, but
version 1.8.1 accepts Intel processors only, and AMD processors with AVX512-BF16 gain as well: twice ONNX Runtime's float32
rate on Zen 5. The library is loaded when it is first needed.

OpenVINO keeps what it compiles for each shape, in each stream: a quarter to a third of a megabyte, both for MiniLM and for
BERT-base. Lengths in multiples of 16 bound that: 172 shapes with windows of 128 tokens in batches of 1,024, which is 93 MiB
for two streams once all shapes have occurred.
"""

from __future__ import annotations

import functools
import importlib.util
import sys
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import numpy.typing as npt

    from enricher.worker.inference.device.session import Feeds, Runtime

PACKAGE = "openvino"


def openvino_problem(precision: str) -> str | None:
    """Why bf16 or fp32 cannot run here; None if it can."""
    if not is_installed():
        return f"OpenVINO is not installed here (`pip install {PACKAGE}`)"
    found = capabilities()
    if found is None:
        return "OpenVINO does not load here"
    if precision.upper() not in found:
        return f"the processor has no {precision} units" + (" (AMX or AVX512-BF16)" if precision == "bf16" else "")
    return None


def is_installed() -> bool:
    """True if the package is installed, whether or not it can use this processor."""
    return importlib.util.find_spec(PACKAGE) is not None


@functools.cache
def capabilities() -> Sequence[str] | None:
    """The precisions that OpenVINO reports for this processor, such as FP32 and BF16; None if it does not load."""
    try:
        return [str(each) for each in _core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")]
    except Exception:  # noqa: BLE001  any error of a foreign library means that it does not load
        return None


def _precision_hint(runtime: Runtime) -> str:
    """OpenVINO's name for the precision of everything that the graph does not quantise."""
    if runtime == "openvino-fp32":
        return "f32"
    # int8 also runs on processors with VNNI and no bf16 (Cascade Lake, Ice Lake): all else is float32 there.
    return "bf16" if runtime == "openvino-bf16" or "BF16" in (capabilities() or ()) else "f32"


class OpenVinoSession:
    """A model on this processor, in the precision of `runtime`.

    Any number of threads may call `run`; `streams` of them run at once. Raises RuntimeError if OpenVINO cannot take the
    whole model, and if a run fails.
    """

    def __init__(self, model: Path | bytes, runtime: Runtime, *, streams: int, threads: int) -> None:
        self._compiled = _core().compile_model(
            _core().read_model(model),
            "CPU",
            {
                # Set explicitly: the default depends on the processor.
                "INFERENCE_PRECISION_HINT": _precision_hint(runtime),
                "NUM_STREAMS": streams,
                "INFERENCE_NUM_THREADS": threads,
                # Pinned streams fall to half their rate as soon as anything else runs on the machine.
                "ENABLE_CPU_PINNING": False,
            },
        )
        self._idle: SimpleQueue[Any] = SimpleQueue()
        for _ in range(streams):
            self._idle.put(self._compiled.create_infer_request())

    def run(self, outputs: Sequence[str], feeds: Feeds) -> list[npt.NDArray[Any]]:
        """The named outputs. Blocks, first until a stream is free, and releases the GIL while the model runs."""
        request = self._idle.get()
        try:
            # Not `infer`: when memory runs out, 2026.4.1 returns from it normally, with the outputs of an earlier run.
            request.start_async(feeds, share_inputs=True)
            request.wait()
            return [np.array(request.get_tensor(name).data) for name in outputs]
        except RuntimeError:
            # After running out of memory, smaller runs fail too unless the memory is released.
            self._compiled.release_memory()
            raise
        finally:
            self._idle.put(request)


@functools.cache
def _core() -> Any:  # noqa: ANN401  its types are known only where it is installed
    # On import OpenVINO reports usage to its makers, and stores an identifier of the machine in HOME. Without its telemetry
    # package it does neither; everything else works.
    sys.modules["openvino_telemetry"] = None  # type: ignore[assignment]
    from openvino import Core, Tensor, Type  # noqa: PLC0415  a fifth of a second, only where OpenVINO runs the model

    # OpenVINO builds its tables of NumPy's types at first use, in a thread that releases the GIL meanwhile. A second thread
    # then waits for the tables while it holds the GIL, and both hang for ever (2026.4.1). So one thread builds them here.
    Type.i32.to_dtype()
    np.array(Tensor(np.zeros(1, np.int32)).data)
    return Core()
