"""Which attention kernels run. ONNX Runtime prints them past Python's streams, so a child process runs the graph.

Run as a module it opens the graph and runs one batch: `python -m tools.bench.gpu.kernels GRAPH FEEDS.npz RUNTIME`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

if TYPE_CHECKING:
    from enricher.worker.inference.device.sessions import Feeds, Runtime

SWITCH = "ORT_ENABLE_ATTENTION_KERNEL_DEBUG_INFO"
UNFUSED = "MATH"
_NAMED = re.compile(r"SdpaKernel=(\w+)")


def kernels_of(path: Path, feeds: Feeds, *, dry: bool) -> dict[str, int]:
    """How often each attention kernel ran in one run, by ONNX Runtime's name. On a CPU none is named."""
    with tempfile.TemporaryDirectory() as scratch:
        arrays = Path(scratch) / "feeds.npz"
        savez: Any = np.savez  # its type hint allows one option only
        savez(arrays, **feeds)
        command = [sys.executable, "-m", "tools.bench.gpu.kernels", str(path), str(arrays), "cpu" if dry else "cuda"]
        done = subprocess.run(command, env=os.environ | {SWITCH: "1"}, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"the run that names attention kernels failed: {done.stderr[-2000:]}")
    return kernels_in(done.stdout + done.stderr)


def kernels_in(printed: str) -> dict[str, int]:
    """Kernel names in what ONNX Runtime prints, such as `SdpaKernel=FLASH_ATTENTION`, and how often each occurs."""
    return dict(Counter(_NAMED.findall(printed)))


def _run_once(path: str, arrays: str, runtime: str) -> None:
    """Run it with the options of a worker, some of which choose kernels."""
    import onnx  # noqa: PLC0415  only the child needs these

    from enricher.worker.inference.device.resolution import cuda_problem  # noqa: PLC0415  as above
    from enricher.worker.inference.device.sessions import open_session  # noqa: PLC0415  as above

    if runtime == "cuda" and (problem := cuda_problem()):
        sys.exit(problem)
    outputs = [each.name for each in onnx.load(path, load_external_data=False).graph.output]
    session = open_session(Path(path), cast("Runtime", runtime), threads_per_run=1, cpu_nodes=True)
    session.run(outputs, dict(np.load(arrays)))


if __name__ == "__main__":
    _run_once(*sys.argv[1:])
