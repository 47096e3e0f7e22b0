"""The name of a device, as settings and commands take it: `auto`, `cpu`, `cuda`, or one GPU of several, `cuda:1`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from enricher.errors import SettingsError

_NAME = re.compile(r"(auto|cpu|cuda)|cuda:(0|[1-9][0-9]{0,2})")


@dataclass(frozen=True, slots=True)
class DeviceName:
    """What kind of device, and which of its kind: as CUDA counts, from 0, among those that the process may see."""

    kind: Literal["auto", "cpu", "cuda"]
    index: int = 0

    def __str__(self) -> str:
        return f"cuda:{self.index}" if self.index else self.kind


def parse_device(text: str) -> DeviceName:
    """The device of that name; `cuda` is `cuda:0`. Raises SettingsError."""
    match = _NAME.fullmatch(text)
    if match is None:
        message = (
            f"'{text}' is no device: there are auto, cpu, cuda, and where there are several GPUs cuda:0, cuda:1, ..."
        )
        raise SettingsError(message)
    kind: Literal["auto", "cpu", "cuda"]
    kind = "auto" if text == "auto" else "cpu" if text == "cpu" else "cuda"
    return DeviceName(kind, int(match[2] or 0))
