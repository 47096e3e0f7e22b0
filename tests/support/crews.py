"""Workers and commands of the fault matrix in processes that are forked, and so start in a quarter of the time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from subprocess import Popen
from typing import cast

from support.forked import Forked

_WITH_FLAWS = {"tools.chaos.worker": "support.flaws"}


def forked(command: Sequence[str], environment: Mapping[str, str], log: Path) -> Popen[bytes]:
    """Start a module as `tools.chaos.crew.launch` does. A worker may lack defences (`support.flaws`)."""
    module, *arguments = command
    started = Forked(["-m", _WITH_FLAWS.get(module, module), *arguments], environment, log, stdout=log)
    return cast("Popen[bytes]", started)
