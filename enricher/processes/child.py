"""The parent's side of one child: starts the process, passes its lines on, posts what happens to it."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from enricher.processes.states import ProcessState, health_port_of, state_of

LAST_LINES_S = 5.0
"""How long to wait for the last lines of a process that has ended: they are in the pipe already."""


@dataclass(frozen=True, slots=True)
class Told:
    """A child tells its state."""

    child: Child
    state: ProcessState


@dataclass(frozen=True, slots=True)
class Serves:
    """A child answers for its health on this port of the loopback address."""

    child: Child
    port: int


@dataclass(frozen=True, slots=True)
class Ended:
    """A child has ended: with an exit code, or below zero the signal that killed it."""

    child: Child
    code: int


class Child:
    """A running process. `post` is called in threads of its own; `write` takes its lines, each with its number before it."""

    def __init__(
        self,
        index: int,
        command: Sequence[str],
        *,
        post: Callable[[Told | Serves | Ended], None],
        write: Callable[[str], object],
    ) -> None:
        self.index = index
        self._post = post
        self._write = write
        self._process = subprocess.Popen(  # noqa: S603  it is this program again
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
            # Ctrl-C goes to a terminal's whole group: only the parent shall have it, and say once what is to be done.
            start_new_session=sys.platform != "win32",
            creationflags=_creation_flags(),
        )
        self.pid = self._process.pid
        self._errors = threading.Thread(target=self._pass_on, name=f"lines-{index}", daemon=True)
        self._errors.start()
        threading.Thread(target=self._listen, name=f"child-{index}", daemon=True).start()

    def ask_to_end(self) -> None:
        """Close its input: it drains and ends."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def kill(self) -> None:
        """End it at once, if it has not ended."""
        self._process.kill()

    def _pass_on(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._write_line(line)

    def _write_line(self, line: str) -> None:
        """With the child's number before it; an object of a log in JSON has it inside, and must stay one."""
        whose = "" if line.startswith("{") else f"[{self.index}] "
        # The reader of our log may have gone: the child, which writes to us, must not come to a halt for it.
        with contextlib.suppress(OSError):
            self._write(f"{whose}{line.rstrip()}\n")

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if state := state_of(line):
                self._post(Told(self, state))
            elif port := health_port_of(line):
                self._post(Serves(self, port))
            else:  # printed before the child took its output for itself
                self._write_line(line)
        code = self._process.wait()
        self._errors.join(LAST_LINES_S)
        self._post(Ended(self, code))


def _creation_flags() -> int:
    if sys.platform == "win32":
        return subprocess.CREATE_NEW_PROCESS_GROUP
    return 0
