"""Arguments that the commands about models share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

Precision = Literal["auto", "fp16", "bf16", "fp32", "int8"]
EMBEDDED = "newswire-minilm"
DEFAULT_LIMIT_POINTS = 0.3
"""As enricher.inference.gate.verdict has it, which --help need not load; a test compares."""

FolderArgument = Annotated[
    str, typer.Argument(metavar="[DIR]", help=f"Folder of a model, or `{EMBEDDED}`, which is built in.")
]
DeviceOption = Annotated[
    str, typer.Option(help="Where it is to run: auto, cpu, cuda, cuda:1, ...; `auto` takes CUDA where it works.")
]
GoldOption = Annotated[
    Path | None,
    typer.Option(help="Labelled text, JSON lines with id, text and entities. Default: English news that comes along."),
]
LimitOption = Annotated[float, typer.Option(min=0.0, max=100.0, help="F1 points that a reduced precision may lose.")]
