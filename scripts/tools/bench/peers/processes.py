"""The bench's side of a peer's process: starts it, sends it orders, ends it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from tools import SCRIPTS
from tools.closing import Closing
from tools.kafka.java import clean_environment

TIMEOUT_S = 300.0
"""Limit for one answer, with loading the model and what PyTorch compiles for it, which takes a minute on two cores."""
PYTHON = (sys.executable, "-m")


class PeerFailed(RuntimeError):
    """A peer's process ended or did not answer; the message holds the end of its output."""


class PeerProcess(Closing):
    """A running peer: `LAUNCHER... PROGRAM ARGUMENTS...`; the launcher runs a module of Python unless another is named."""

    def __init__(self, program: str, *arguments: object, launcher: Sequence[str] = PYTHON) -> None:
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115  closed by close()
        self._process = subprocess.Popen(
            [*launcher, program, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            env=environment(),
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, order: Mapping[str, Any]) -> dict[str, Any]:
        """Send an order and wait for its answer. Raises PeerFailed."""
        assert self._process.stdin is not None
        self._process.stdin.write(orjson.dumps(order) + b"\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = orjson.loads(self.line())
        return answer

    def line(self) -> bytes:
        """Read the next line of its output. Raises PeerFailed."""
        assert self._process.stdout is not None
        alarm = threading.Timer(TIMEOUT_S, self._process.kill)
        alarm.start()
        try:
            line = self._process.stdout.readline().strip()
        finally:
            alarm.cancel()
        if not line:
            raise PeerFailed(self._last_words())
        return line

    def close(self) -> None:
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()
        self._process.terminate()
        self._process.wait(30)
        self._complaints.close()

    def _last_words(self) -> str:
        self._process.kill()
        self._complaints.seek(0)
        said = self._complaints.read().decode(errors="replace").strip().splitlines()[-5:]
        return f"{' '.join(map(str, self._process.args))}: exit code {self._process.wait()}\n" + "\n".join(said)  # type: ignore[arg-type]


def environment() -> dict[str, str]:
    """Our environment with `scripts` first on the path, without settings for Java or for the tokenizer library's threads."""
    kept = {name: value for name, value in clean_environment().items() if name != "TOKENIZERS_PARALLELISM"}
    path = os.pathsep.join((str(SCRIPTS), *filter(None, [kept.get("PYTHONPATH")])))
    return kept | {"PYTHONPATH": path}
