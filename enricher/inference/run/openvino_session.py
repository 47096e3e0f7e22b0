"""OpenVINO: whether it is here, what its processor computes in, and a model opened on it, called as a session is.

By its own Python package. Intel's plugin provider for ONNX Runtime brings the same library, but its version 1.8.1 lists
processors of Intel's make only, and AMD's with AVX512-BF16 gain as well: twice ONNX Runtime's float32 on Zen 5. The library
is loaded at the first question and never otherwise.

It keeps what it makes for each shape, in each stream: a quarter to a third of a megabyte, much the same for MiniLM and
BERT-base. Lengths that are multiples of 16 are few: 172 shapes with windows of 128 tokens in batches of 1,024, 93 MiB for
two streams when all have come, and no more from then on.
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

    from enricher.inference.graph.variants import Feeds, Runtime

NAME = "OpenVINO"
"""What metrics and reports call it, beside the names of ONNX Runtime's execution providers."""
PACKAGE = "openvino"
_HINTS: dict[Runtime, str] = {"openvino-bf16": "bf16", "openvino-fp32": "f32"}


def problem(precision: str) -> str | None:
    """Why bf16 or fp32 cannot run here; None where it can."""
    if not installed():
        return f"OpenVINO is not installed here (`pip install {PACKAGE}`)"
    found = capabilities()
    if found is None:
        return "OpenVINO does not load here"
    if precision.upper() not in found:
        return f"the processor has no {precision} units" + (" (AMX or AVX512-BF16)" if precision == "bf16" else "")
    return None


def installed() -> bool:
    """True where the package is there, whether or not it has use for this processor."""
    return importlib.util.find_spec(PACKAGE) is not None


@functools.cache
def capabilities() -> Sequence[str] | None:
    """What OpenVINO says that the processor computes in, such as FP32 and BF16; None where it does not load."""
    try:
        return [str(each) for each in _core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")]
    except Exception:  # noqa: BLE001  it is a library of somebody else's: whatever it raises, it does not load
        return None


class OpenVinoSession:
    """A model on this processor, in bf16 or fp32. `run` may be called from any number of threads; `streams` go on at once.

    Raises RuntimeError for a model that OpenVINO does not take as a whole, and where a run fails.
    """

    def __init__(self, model: Path | bytes, runtime: Runtime, *, streams: int, threads: int) -> None:
        self._compiled = _core().compile_model(
            _core().read_model(model),
            "CPU",
            {
                # By name: what is inherited from the processor changes with it.
                "INFERENCE_PRECISION_HINT": _HINTS[runtime],
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
        """The outputs of that name. Blocks, first for one of the streams, and without the interpreter's lock."""
        request = self._idle.get()
        try:
            # Not `infer`: where there is no memory, that of 2026.4.1 returns all the same, with what an earlier run left.
            request.start_async(feeds, share_inputs=True)
            request.wait()
            return [np.array(request.get_tensor(name).data) for name in outputs]
        except RuntimeError:
            # A run that failed for want of memory leaves behind what makes smaller ones fail too.
            self._compiled.release_memory()
            raise
        finally:
            self._idle.put(request)


@functools.cache
def _core() -> Any:  # noqa: ANN401  its types are known only where it is installed
    # Its import otherwise tells its makers of it, and keeps an identifier of the machine in HOME. Without the package that
    # does so it does neither, and misses nothing.
    sys.modules["openvino_telemetry"] = None  # type: ignore[assignment]
    from openvino import Core, Tensor, Type  # noqa: PLC0415  a fifth of a second, and not for those who run elsewhere

    # Its tables of NumPy's types are made at first use, by a thread that lets go of the interpreter's lock meanwhile.
    # Another that comes then waits for the tables, holding it, and both hang for ever (2026.4.1): so here, by one alone.
    Type.i32.to_dtype()
    np.array(Tensor(np.zeros(1, np.int32)).data)
    return Core()
