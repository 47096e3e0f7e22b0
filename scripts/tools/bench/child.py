"""A helper process that is talked to in lines of JSON. None outlives the bench: it ends with its standard input."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

import orjson

from tools import python_path

PYTHON = (sys.executable, "-m")
ANSWER_S = 300.0
"""Limit for one answer, with loading the model and what PyTorch compiles for it, which takes a minute on two cores."""
_LEAVE_S = 30.0


class ChildFailed(RuntimeError):
    """A process ended or did not answer. `why`: the end of its output, or how it ended if it said nothing."""

    def __init__(self, command: str, why: str) -> None:
        super().__init__(f"{command}: {why}")
        self.why = why


def tell(message: object) -> None:
    """Send one message to the parent, as a child: JSON, or a dataclass of it."""
    sys.stdout.buffer.write(orjson.dumps(message) + b"\n")
    sys.stdout.buffer.flush()


class Child:
    """`LAUNCHER... PROGRAM ARGUMENTS...`, started at once; the launcher runs a module of Python unless another is named.

    `limit_s`: how long it may take for an answer; then it is killed. Leaving the context ends it.
    """

    def __init__(self, program: str, *arguments: object, launcher: Sequence[str] = PYTHON) -> None:
        self.limit_s = ANSWER_S
        self._late = ""
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115  closed when the context is left
        self._command = [*launcher, program, *map(str, arguments)]
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            env=_environment(),
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def say(self, message: object) -> None:
        """Send a message. Raises ChildFailed if the child ended."""
        assert self._process.stdin, "the pipe is made at the start"
        try:
            self._process.stdin.write(orjson.dumps(message) + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._end_error() from None

    def hear(self) -> dict[str, Any]:
        """Read the next message. Raises ChildFailed if the child ended, or said nothing for `limit_s`."""
        assert self._process.stdout, "the pipe is made at the start"
        alarm = threading.Timer(self.limit_s, self._kill_late)
        alarm.start()
        try:
            line = self._process.stdout.readline()
        finally:
            alarm.cancel()
        if not line:
            raise self._end_error()
        message: dict[str, Any] = orjson.loads(line)
        return message

    def ask(self, **command: object) -> dict[str, Any]:
        """Send a command; returns the answer, as `hear`."""
        self.say(command)
        return self.hear()

    def _kill_late(self) -> None:
        self._late = f"no answer within {self.limit_s:.0f} s"
        self._process.kill()

    def _end_error(self) -> ChildFailed:
        code = self._process.wait(_LEAVE_S)
        self._complaints.seek(0)
        said = self._complaints.read().decode(errors="replace").strip().splitlines()[-5:]
        return ChildFailed(" ".join(self._command), self._late or "\n".join(said) or f"exit code {code}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # The exit code tells nothing: a server reads no messages, so all are ended by a signal.
        try:
            self._process.terminate()
            self._process.wait(_LEAVE_S)
        finally:
            self._process.kill()
            self._process.wait()
            self._complaints.close()


def _environment() -> dict[str, str]:
    """Our environment with `scripts` first on the path, without settings for Java or for the tokenizer library's threads."""
    from tools.kafka.java import clean_environment  # noqa: PLC0415  peers with a Python of their own lack what it imports

    kept = {name: value for name, value in clean_environment().items() if name != "TOKENIZERS_PARALLELISM"}
    return kept | {"PYTHONPATH": python_path()}
