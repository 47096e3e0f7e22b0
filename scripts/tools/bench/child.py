"""A helper process that talks in lines of JSON and ends when its standard input ends.

So no process outlives the bench, however that ends.
"""

from __future__ import annotations

import os
import subprocess
import sys
from types import TracebackType
from typing import Any, Self

import orjson

from tools import python_path

_LEAVE_S = 60.0
"""A stopping worker finishes what is on the device and leaves its group; a busy machine needs time for that."""


def launch(module: str) -> subprocess.Popen[bytes]:
    """Start `python -m module`; its standard input and output are pipes."""
    environment = {**os.environ, "PYTHONPATH": python_path()}
    command = [sys.executable, "-m", module]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)


def tell(message: object) -> None:
    """Send one message to the parent, as a child: JSON, or a dataclass of it."""
    sys.stdout.buffer.write(orjson.dumps(message) + b"\n")
    sys.stdout.buffer.flush()


class Child:
    """`python -m module`, started at once. Leaving the context asks it to end; after an error it is killed.

    `process`: what was started instead; `module` is then its name in messages.
    """

    def __init__(self, module: str, process: subprocess.Popen[bytes] | None = None) -> None:
        self._module = module
        self._process = process or launch(module)

    def say(self, message: object) -> None:
        assert self._process.stdin, "the process was asked to end already"
        self._process.stdin.write(orjson.dumps(message) + b"\n")
        self._process.stdin.flush()

    def hear(self) -> dict[str, Any]:
        """Read the next message. Blocks; the child bounds its own waits. Raises RuntimeError if the child ended."""
        assert self._process.stdout, "the pipe is made at the start"
        line = self._process.stdout.readline()
        if not line:
            raise self._end_error(self._process.wait())
        message: dict[str, Any] = orjson.loads(line)
        return message

    def ask(self, **command: object) -> dict[str, Any]:
        """Send a command; returns the answer, as `hear`."""
        self.say(command)
        return self.hear()

    def leave(self) -> None:
        """Ask the child to end and wait for it. Raises RuntimeError if its exit code is not 0."""
        if self._process.stdin and not self._process.stdin.closed:
            self._process.stdin.close()
        if code := self._process.wait(_LEAVE_S):
            raise self._end_error(code)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def _end_error(self, code: int) -> RuntimeError:
        return RuntimeError(f"{self._module} ended with code {code}; see its messages above")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self.leave()
        finally:
            self.kill()
