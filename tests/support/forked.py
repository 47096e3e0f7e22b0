"""Programs of Python in processes that need not import the package again: they are forked from one that has.

That process comes from `multiprocessing`, has one thread, and ends with the one that runs the tests.
"""

from __future__ import annotations

import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Self

import psutil
import pytest

from support.logs import new_log
from tools.waiting import suspend

_PRELOADED = ("pytest", "support.preloaded")
_LOCK = threading.RLock()
"""`multiprocessing` reads an exit status once, and takes a second reader's failure for one; a start reads them all."""


class Forked:
    """A program started as `python ARGUMENTS` would be: `["-m", "enricher", "run"]`, or a path. Used like a `Popen`.

    Its standard error goes to the end of `log`, a new file in the folder of logs if there is none. `stdin` and `stdout` are
    files too; without the first, its standard input is the attribute `stdin`. May be used from several threads.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        log: Path | None = None,
        *,
        stdin: Path | None = None,
        stdout: Path | None = None,
    ) -> None:
        log = log or new_log("worker")
        log.touch()  # so that it can be read at once
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(list(_PRELOADED))
        its_input, ours = context.Pipe(duplex=False)
        with its_input, ours:
            self.stdin = os.fdopen(os.dup(ours.fileno()), "wb")
            started = list(arguments), dict(environment), its_input, (stdin, stdout, log)
            self._process = context.Process(target=_run, args=started, daemon=True)
            with _LOCK, _one_thread():
                self._process.start()

    @property
    def pid(self) -> int:
        """Its process id."""
        assert self._process.pid is not None
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """Its exit status, negative for a signal; None while it runs."""
        with _LOCK:
            return self._process.exitcode

    def poll(self) -> int | None:
        """The same."""
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end. Raises `subprocess.TimeoutExpired`."""
        wait([self._process.sentinel], timeout)
        code = self.returncode
        if code is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired(self._process.name, timeout)
        return code

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        """Kill it if it still runs."""
        self.kill()
        self.wait()

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.returncode is None:
            os.kill(self.pid, number)

    def suspend(self) -> None:
        """Send SIGSTOP, and wait until it stands still."""
        suspend(psutil.Process(self.pid))

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)


@contextmanager
def _one_thread() -> Iterator[None]:
    """The environment of the process that forks: it finds its modules, and no library of it starts threads at import.

    A test folder, which pytest puts in front, may have a module that is called as a package of ours is.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join((str(Path(__file__).parents[1]), *sys.path)))
        patch.setenv("OPENBLAS_NUM_THREADS", "1")
        yield


def _run(
    arguments: Sequence[str],
    environment: Mapping[str, str],
    its_input: Connection,
    streams: Sequence[Path | None],
) -> None:
    os.dup2(its_input.fileno(), 0)
    its_input.close()
    for number, path in enumerate(streams):
        if path is not None:
            with path.open("ab" if number else "rb") as file:
                os.dup2(file.fileno(), number)
    sys.stdin = open(0, closefd=False, encoding="utf-8")  # noqa: SIM115  what starts processes has replaced it
    os.environ.clear()
    os.environ.update(environment)
    if arguments[0] == "-m":
        sys.argv = ["", *arguments[2:]]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = list(arguments)
        runpy.run_path(arguments[0], run_name="__main__")
