"""The parent's side of one child process: starts it, forwards its log lines, reports its events."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence

from enricher.worker.processes.states import ALIVE, ProcessState, health_port_of, state_of

LAST_LINES_S = 5.0
"""How long to wait for the last lines of an ended process, which are already in the pipe."""


class Child:
    """A running child process. Its threads call `write` with its log lines, each with the child's number.

    They call `on_state` and `on_health_port` (of the loopback address) when it reports these, and finally `on_end` with the
    exit code, or minus the number of the signal that killed it. `heard_s`: when it last reported, by `clock`; before its
    first report, when it started.
    """

    def __init__(
        self,
        index: int,
        command: Sequence[str],
        *,
        on_state: Callable[[ProcessState], None],
        on_health_port: Callable[[int], None],
        on_end: Callable[[int], None],
        write: Callable[[str], object],
        clock: Callable[[], float],
    ) -> None:
        self.index = index
        self._on_state, self._on_health_port, self._on_end = on_state, on_health_port, on_end
        self._write = write
        self._clock = clock
        self.heard_s = clock()
        self.reported = False
        self._process = subprocess.Popen(  # noqa: S603  this program again
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
            # Ctrl-C goes to the whole process group of a terminal, and only the parent must react to it.
            start_new_session=sys.platform != "win32",
            creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
        )
        self.pid = self._process.pid
        self._errors = threading.Thread(target=self._forward_log, name=f"lines-{index}", daemon=True)
        self._errors.start()
        threading.Thread(target=self._listen, name=f"child-{index}", daemon=True).start()

    def ask_to_end(self) -> None:
        """Ask it to drain and end, by closing its standard input."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def kill(self) -> None:
        """Kill it if it still runs."""
        self._process.kill()

    def _forward_log(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._write_line(line)

    def _write_line(self, line: str) -> None:
        """Prefix the line with the child's number. A JSON line already contains it, and must stay JSON."""
        prefix = "" if line.startswith("{") else f"[{self.index}] "
        # Even if nobody reads our log any more, the child must not block on a full pipe.
        with contextlib.suppress(OSError):
            self._write(f"{prefix}{line.rstrip()}\n")

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.heard_s, self.reported = self._clock(), True
            if line.strip() == ALIVE:
                continue
            if state := state_of(line):
                self._on_state(state)
            elif port := health_port_of(line):
                self._on_health_port(port)
            else:  # printed before the child redirected its output
                self._write_line(line)
        code = self._process.wait()
        self._errors.join(LAST_LINES_S)
        self._on_end(code)
