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

from tools import python_path
from tools.waiting import Closing

Launch = Callable[[Sequence[str], Mapping[str, str], Path], subprocess.Popen[bytes]]

_RESTART_S = 0.5
"""Kubernetes restarts a container at once the first time, and waits longer than this from then on."""
_LEAVE_S = 30.0


@dataclass(frozen=True, slots=True)
class Exit:
    """A worker process ended at `at_s` (monotonic). `code`: its exit code, or below 0 the signal that killed it."""

    at_s: float
    name: str
    code: int


def environment_of(settings: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Our environment with these settings of a worker, by group and name, instead of those that are in it."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("ENRICHER_")}
    own = {
        f"ENRICHER_{group.upper()}__{name.upper()}": value if isinstance(value, str) else orjson.dumps(value).decode()
        for group, values in settings.items()
        for name, value in values.items()
    }
    return {**ours, "PYTHONPATH": python_path(), **own}


def launch(command: Sequence[str], environment: Mapping[str, str], log: Path) -> subprocess.Popen[bytes]:
    """Start `python -m` with this module and its arguments, in the folder of `log`, to which its output is appended."""
    with log.open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "-m", *command],
            stdin=subprocess.PIPE,
            stderr=output,
            stdout=output,
            env=environment,
            cwd=log.parent,
            start_new_session=True,
        )


class Slot:
    """The slot of one worker. A restart replaces its process. `start` starts one; `note` is called with each exit."""

    def __init__(self, name: str, start: Callable[[], subprocess.Popen[bytes]], note: Callable[[Exit], None]) -> None:
        self.name = name
        self._start = start
        self._note = note
        self._over = threading.Event()
        self._process = start()
        self._thread = threading.Thread(target=self._tend, name=f"slot-{name}", daemon=True)
        self._thread.start()

    @property
    def client_id(self) -> str:
        return f"enricher-{self.name}"

    @property
    def pid(self) -> int | None:
        """Process id, None while no process runs."""
        process = self._process
        return process.pid if process.poll() is None else None

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def tell(self, command: str) -> None:
        """Send a command to the process's standard input (see `tools.chaos.worker`)."""
        stdin = self._process.stdin
        assert stdin
        stdin.write(f"{command}\n".encode())
        stdin.flush()

    def retire(self, number: signal.Signals = signal.SIGTERM) -> None:
        """End the process with a signal and do not restart it. Blocks until it has ended."""
        self._over.set()
        self.send(signal.SIGCONT)
        self.send(number)
        self._thread.join(_LEAVE_S)
        if self._process.poll() is None:
            self._process.kill()
        self._thread.join()

    def _tend(self) -> None:
        while True:
            process = self._process
            code = process.wait()
            assert process.stdin
            process.stdin.close()
            self._note(Exit(time.monotonic(), self.name, code))
            if self._over.wait(_RESTART_S):
                return
            self._process = self._start()
            if self._over.is_set():  # `retire` has seen only the process before
                self.send(signal.SIGTERM)


class Crew(Closing):
    """Worker slots by name. `settings_of` returns the settings of a worker, before each start; logs go to `folder`.

    `launch`: starts a process, as the function of that name does.
    """

    def __init__(
        self,
        names: list[str],
        settings_of: Callable[[str], Mapping[str, Any]],
        folder: Path,
        launch: Launch = launch,
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

        def start() -> subprocess.Popen[bytes]:
            return self._launch(("tools.chaos.worker", *arguments), environment_of(self._settings_of(name)), log)

        self.slots[name] = Slot(name, start, self.exits.append)

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
