"""The bench's side of a peer's process: starts it, sends it orders, ends it."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from tools import python_path
from tools.bench.child import Child
from tools.kafka.java import clean_environment

TIMEOUT_S = 300.0
"""Limit for one answer, with loading the model and what PyTorch compiles for it, which takes a minute on two cores."""
PYTHON = (sys.executable, "-m")
_LEAVE_S = 30.0


class PeerFailed(RuntimeError):
    """A peer's process ended or did not answer; the message holds the end of its output."""


class PeerProcess(Child):
    """A running peer: `LAUNCHER... PROGRAM ARGUMENTS...`; the launcher runs a module of Python unless another is named.

    Its methods raise PeerFailed where a child's raise RuntimeError.
    """

    def __init__(self, program: str, *arguments: object, launcher: Sequence[str] = PYTHON) -> None:
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115  closed when the context is left
        command = [*launcher, program, *map(str, arguments)]
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            env=environment(),
        )
        super().__init__(" ".join(command), process)

    @property
    def pid(self) -> int:
        return self._process.pid

    def hear(self) -> dict[str, Any]:
        """Read the next message; a peer that says nothing for `TIMEOUT_S` is killed."""
        alarm = threading.Timer(TIMEOUT_S, self._process.kill)
        alarm.start()
        try:
            return super().hear()
        finally:
            alarm.cancel()

    def leave(self) -> None:
        """End the peer, which may be a server that reads no orders; its exit code tells nothing."""
        self._process.terminate()
        self._process.wait(_LEAVE_S)

    def _end_error(self, code: int) -> RuntimeError:
        self._complaints.seek(0)
        said = self._complaints.read().decode(errors="replace").strip().splitlines()[-5:]
        return PeerFailed("\n".join([f"{self._module}: exit code {code}", *said]))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        self._complaints.close()


def environment() -> dict[str, str]:
    """Our environment with `scripts` first on the path, without settings for Java or for the tokenizer library's threads."""
    kept = {name: value for name, value in clean_environment().items() if name != "TOKENIZERS_PARALLELISM"}
    return kept | {"PYTHONPATH": python_path()}
