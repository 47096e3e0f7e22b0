"""The crew: worker processes that are restarted when they end, as Kubernetes would, with their exit codes recorded."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import psutil

from tools import python_path
from tools.waiting import Closing

Launch = Callable[[Sequence[str], Path], subprocess.Popen[bytes]]

_RESTART_S = 0.5
"""Kubernetes restarts a container at once the first time, and waits longer than this from then on."""
_LEAVE_S = 30.0


@dataclass(frozen=True, slots=True)
class Exit:
    """A worker process ended at `at_s` (monotonic). `code`: its exit code, or below 0 the signal that killed it."""

    at_s: float
    name: str
    code: int


def environment_of_workers() -> dict[str, str]:
    """Ours without the settings of a worker: those come by its standard input."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("ENRICHER_")}
    return {**ours, "PYTHONPATH": python_path()}


def launch_worker(arguments: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    """Start `tools.chaos.worker`, which reads its settings from a pipe."""
    command = ("tools.chaos.worker", *arguments)
    return launch_module(command, environment_of_workers(), log, stdin=subprocess.PIPE, start_new_session=True)


def launch_module(
    command: Sequence[str],
    environment: Mapping[str, str],
    log: Path,
    *,
    stdin: int = subprocess.DEVNULL,
    start_new_session: bool = False,
) -> subprocess.Popen[bytes]:
    """Start `python -m` with this module and its arguments, in the folder of `log`, to which its output is appended."""
    with log.open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "-m", *command],
            stdin=stdin,
            stderr=output,
            stdout=output,
            env=environment,
            cwd=log.parent,
            start_new_session=start_new_session,
        )


class Slot:
    """The slot of one worker. A restart replaces its process. `note` is called with each exit.

    `start`: starts a process, which still waits for its settings. `settings`: called before each start.
    """

    def __init__(
        self,
        name: str,
        start: Callable[[], subprocess.Popen[bytes]],
        settings: Callable[[], Mapping[str, Any]],
        note: Callable[[Exit], None],
    ) -> None:
        self.name = name
        self._start = start
        self._settings = settings
        self._note = note
        self._over = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._spawn()
        self._thread = threading.Thread(target=self._tend, name=f"slot-{name}", daemon=True)
        self._thread.start()

    @property
    def client_id(self) -> str:
        return f"enricher-{self.name}"

    @property
    def pid(self) -> int | None:
        """Process id, None while no process runs."""
        process = self._process
        return process.pid if process and process.poll() is None else None

    @property
    def cpu_s(self) -> float:
        """CPU time of the running process; 0 if there is none."""
        try:
            times = psutil.Process(self.pid).cpu_times()
        except psutil.NoSuchProcess:
            return 0.0
        return float(times.user + times.system)

    def send(self, number: signal.Signals) -> None:
        if process := self._process:
            process.send_signal(number)

    def tell(self, command: str) -> None:
        """Send a command to the process's standard input (see `tools.chaos.worker`)."""
        process = self._process
        assert process
        assert process.stdin
        process.stdin.write(f"{command}\n".encode())
        process.stdin.flush()

    def retire(self, number: signal.Signals = signal.SIGTERM) -> None:
        """End the process with a signal and do not restart it. Blocks until it has ended."""
        self._over.set()
        self.send(signal.SIGCONT)
        self.send(number)
        self._thread.join(_LEAVE_S)
        if self._process and self._process.poll() is None:
            self._process.kill()
        self._thread.join()

    def _spawn(self) -> None:
        self._process = self._start()
        assert self._process.stdin
        self._process.stdin.write(orjson.dumps(self._settings()) + b"\n")
        self._process.stdin.flush()

    def _tend(self) -> None:
        while True:
            process = self._process
            assert process
            code = process.wait()
            assert process.stdin
            process.stdin.close()
            self._note(Exit(time.monotonic(), self.name, code))
            if self._over.wait(_RESTART_S):
                return
            self._spawn()
            if self._over.is_set():  # `retire` has seen only the process before
                self.send(signal.SIGTERM)


class Crew(Closing):
    """Worker slots by name. `settings_of` returns the settings of a worker; logs go to `folder`.

    `launch`: starts a worker's process, as `launch_worker` does.
    """

    def __init__(
        self,
        names: list[str],
        settings_of: Callable[[str], Mapping[str, Any]],
        folder: Path,
        launch: Launch = launch_worker,
    ) -> None:
        self._launch = launch
        self._settings_of = settings_of
        self._folder = folder
        self._resting: list[str] = []
        self.exits: list[Exit] = []
        self.slots: dict[str, Slot] = {}
        for name in names:
            self.add(name)

    def add(self, name: str, arguments: Sequence[str] = ()) -> None:
        """Add a worker, which gets these arguments."""
        log = self._folder / f"{name}.log"
        self.slots[name] = Slot(
            name, lambda: self._launch(arguments, log), lambda: self._settings_of(name), self.exits.append
        )

    def remove(self, name: str, number: signal.Signals = signal.SIGTERM) -> None:
        """End a worker with a signal and remove its slot."""
        self.slots.pop(name).retire(number)

    def rest(self) -> None:
        """Stop all workers gracefully, in parallel, and start none until `wake`."""
        self._resting = list(self.slots)
        self.close()

    def wake(self) -> None:
        """Start the workers again that `rest` stopped."""
        for name in self._resting:
            self.add(name)

    def exits_since(self, at_s: float) -> list[Exit]:
        return [each for each in self.exits if each.at_s >= at_s]

    def close(self) -> None:
        """Stop all workers gracefully, in parallel."""
        with ThreadPoolExecutor(len(self.slots) or 1) as pool:
            list(pool.map(Slot.retire, self.slots.values()))
        self.slots.clear()
