"""Devices and precisions as settings and commands name them: `auto`, `cpu`, `cuda`, or one of several GPUs, `cuda:1`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from enricher.errors import SettingsError

Precision = Literal["auto", "fp16", "bf16", "fp32", "int8"]
"""The precision of a model in settings and commands. `auto`: the fastest that may serve."""
_NAME = re.compile(r"(auto|cpu|cuda)|cuda:(0|[1-9][0-9]{0,2})")


@dataclass(frozen=True, slots=True)
class DeviceName:
    """A parsed device name. `index` is CUDA's, from 0, among the GPUs visible to the process."""

    kind: Literal["auto", "cpu", "cuda"]
    index: int = 0

    def __str__(self) -> str:
        return f"cuda:{self.index}" if self.index else self.kind


def parse_device(text: str) -> DeviceName:
    """Parse a device name; `cuda` means `cuda:0`. Raises SettingsError."""
    match = _NAME.fullmatch(text)
    if match is None:
        message = f"'{text}' is not a device: use auto, cpu, cuda, or with several GPUs cuda:0, cuda:1, ..."
        raise SettingsError(message)
    return DeviceName("auto" if text == "auto" else "cpu" if text == "cpu" else "cuda", int(match[2] or 0))
