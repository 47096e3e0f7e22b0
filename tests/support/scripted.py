"""The commands of a script that keeps servers running: those that start or end them in a process, the others in this one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pytest

from support.patience import PATIENCE_S

SCRIPTS = Path(__file__).parents[2] / "scripts"


class Done(NamedTuple):
    """What a command did."""

    code: int
    out: str
    err: str


@dataclass(frozen=True, slots=True)
class Script:
    """A script by its module and the function that runs its command line, with its data in a folder."""

    module: str
    main: Callable[[], None]
    folder: Path
    monkeypatch: pytest.MonkeyPatch
    capfd: pytest.CaptureFixture[str]

    def process(self, *arguments: str) -> Done:
        """Run a command in a process."""
        command = [sys.executable, "-m", self.module, *self._with_data(arguments)]
        environment = {**os.environ, "PYTHONPATH": str(SCRIPTS)}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
        return Done(done.returncode, done.stdout, done.stderr)

    def __call__(self, *arguments: str) -> Done:
        """Run a command in this process."""
        self.monkeypatch.setattr(sys, "argv", [self.module, *self._with_data(arguments)])
        with pytest.raises(SystemExit) as ended:
            self.main()
        said = self.capfd.readouterr()
        if isinstance(ended.value.code, str):  # the interpreter would print it and exit with 1
            return Done(1, said.out, ended.value.code)
        return Done(ended.value.code or 0, said.out, said.err)

    def _with_data(self, arguments: tuple[str, ...]) -> tuple[str, ...]:
        has_data = arguments[0] in {"start", "status", "stop"}
        return (*arguments, "--data", str(self.folder)) if has_data else arguments
