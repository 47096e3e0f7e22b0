"""Which attention kernels run. ONNX Runtime prints them past Python's streams, so a child process runs the graph.

Run as a file it opens the graph and runs one batch: `python kernels.py GRAPH FEEDS.npz PROVIDER`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from enricher.inference.device.session import Feeds

SWITCH = "ORT_ENABLE_ATTENTION_KERNEL_DEBUG_INFO"
UNFUSED = "MATH"
_NAMED = re.compile(r"SdpaKernel=(\w+)")


def kernels_of(path: Path, feeds: Feeds, *, dry: bool) -> dict[str, int]:
    """How often each attention kernel ran in one run, by ONNX Runtime's name. On a CPU none is named."""
    with tempfile.TemporaryDirectory() as scratch:
        arrays = Path(scratch) / "feeds.npz"
        savez: Any = np.savez  # its type hint allows one option only
        savez(arrays, **feeds)
        provider = "CPUExecutionProvider" if dry else "CUDAExecutionProvider"
        command = [sys.executable, __file__, str(path), str(arrays), provider]
        done = subprocess.run(command, env=os.environ | {SWITCH: "1"}, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"the run that names attention kernels failed: {done.stderr[-2000:]}")
    return kernels_in(done.stdout + done.stderr)


def kernels_in(printed: str) -> dict[str, int]:
    """Kernel names in what ONNX Runtime prints, such as `SdpaKernel=FLASH_ATTENTION`, and how often each occurs."""
    return dict(Counter(_NAMED.findall(printed)))


def _run_once(path: str, arrays: str, provider: str) -> None:
    import onnxruntime as ort  # noqa: PLC0415  only the child needs it

    if provider.startswith("CUDA"):
        ort.preload_dlls()
    session = ort.InferenceSession(path, providers=[provider])
    assert session.get_providers()[0] == provider, "fell back"
    session.run(None, dict(np.load(arrays)))


if __name__ == "__main__":
    _run_once(*sys.argv[1:])
