"""Arguments that the commands about models share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from enricher.worker.inference.run.model import EMBEDDED

FolderArgument = Annotated[
    str, typer.Argument(metavar="[DIR]", help=f"Folder of a model, or `{EMBEDDED}`, which is built in.")
]
ModelArgument = Annotated[str, typer.Argument(help=f"Folder of a model, or `{EMBEDDED}`, which is built in.")]
DeviceOption = Annotated[
    str, typer.Option(help="Device to run on: auto, cpu, cuda, cuda:1, ...; `auto` takes CUDA where it works.")
]
GoldOption = Annotated[
    Path | None,
    typer.Option(
        help="Text: CoNLL columns, or JSON lines with id, text, and entities, label or labels, as the model's head needs "
        "them. Default: the built-in English news, which has entities only."
    ),
]
LimitOption = Annotated[float, typer.Option(min=0.0, max=100.0, help="F1 points that a reduced precision may lose.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
