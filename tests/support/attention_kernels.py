"""The attention kernels that ONNX Runtime runs on a GPU. It prints them past Python's streams, so a child runs the graph.

As a program it opens a graph and runs one batch: `attention_kernels.py GRAPH FEEDS.npz`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from enricher.worker.inference.device.hardware import cuda_problem
from enricher.worker.inference.device.sessions import Feeds, open_session

UNFUSED = "MATH"
_SWITCH = "ORT_ENABLE_ATTENTION_KERNEL_DEBUG_INFO"
_NAMED = re.compile(r"SdpaKernel=(\w+)")


def kernels_of(path: Path, feeds: Feeds) -> dict[str, int]:
    """How often each attention kernel ran in one run, by ONNX Runtime's name, such as `FLASH_ATTENTION`."""
    with tempfile.TemporaryDirectory() as scratch:
        arrays = Path(scratch) / "feeds.npz"
        savez: Any = np.savez  # its type hint allows one option only
        savez(arrays, **feeds)
        command = [sys.executable, "-P", __file__, str(path), str(arrays)]
        done = subprocess.run(command, env=os.environ | {_SWITCH: "1"}, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"the run that names attention kernels failed: {done.stderr[-2000:]}")
    return dict(Counter(_NAMED.findall(done.stdout + done.stderr)))


def _run_once(path: str, arrays: str) -> None:
    """Run it with the options of a worker, some of which choose kernels."""
    if problem := cuda_problem():
        sys.exit(problem)
    session = open_session(Path(path), "cuda", threads_per_run=1, cpu_nodes=True)
    session.run(["labels", "scores"], dict(np.load(arrays)))


if __name__ == "__main__":
    _run_once(*sys.argv[1:])
