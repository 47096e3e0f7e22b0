"""Workers and commands of the fault matrix in processes that are forked, and so start in a quarter of the time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from subprocess import Popen
from typing import cast

from support.forked import Forked
from tools.chaos.crew import environment_of_workers


def forked(arguments: Sequence[str], log: Path) -> Popen[bytes]:
    """Start `tools.chaos.worker` as `tools.chaos.crew.launch_worker` does. It may lack defences (`support.flaws`)."""
    return cast("Popen[bytes]", Forked(["-m", "support.flaws", *arguments], environment_of_workers(), log))


def forked_module(command: Sequence[str], environment: Mapping[str, str], log: Path) -> Popen[bytes]:
    """Start a module as `tools.chaos.crew.launch_module` does."""
    return cast("Popen[bytes]", Forked(["-m", *command], environment, log, stdout=log))
