"""Finds a Python with PyTorch, which takes gigabytes and is needed by some peers only, so it is not in our environment."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass

VARIABLE = "BENCH_TORCH_PYTHON"
PACKAGES = ("torch", "transformers", "confluent_kafka", "orjson")
_HOW_TO = (
    "python3 -m venv torch-env && torch-env/bin/pip install torch transformers confluent-kafka orjson, "
    f"then {VARIABLE}=torch-env/bin/python scripts/bench peers"
)
_SAY_VERSION = f"import {', '.join(PACKAGES)}; print(torch.__version__)"


@dataclass(frozen=True, slots=True)
class TorchPython:
    """An interpreter with everything that these peers need, and its PyTorch version."""

    path: str
    torch_version: str


def torch_python() -> TorchPython | str:
    """The interpreter named by the variable, otherwise this one; or a text that says why not, and what to do."""
    path = os.environ.get(VARIABLE, sys.executable)
    try:
        answer = subprocess.run([path, "-c", _SAY_VERSION], capture_output=True, text=True, timeout=120, check=False)
    except OSError as error:
        return f"not measured: {VARIABLE} names {path}: {error.strerror}"
    if answer.returncode == 0:
        return TorchPython(path, answer.stdout.strip())
    reason = (answer.stderr.strip().splitlines() or ["no reason given"])[-1]
    lacks = "PyTorch is not installed" if "'torch'" in reason else f"{path}: {reason}"
    return f"not measured: {lacks}. To measure it: {_HOW_TO}"
