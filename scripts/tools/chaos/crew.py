"""The workers: processes that are started again when they end, as Kubernetes would, with their exit codes noted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import orjson
import psutil

from tools import SCRIPTS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType

_RESTART_S = 0.5
"""Kubernetes starts a container again at once the first time; from then on it takes longer than this."""
_LEAVE_S = 30.0
_LOOK_S = 0.1


@dataclass(frozen=True, slots=True)
class Exit:
    """A worker ended: when (monotonic), which, with which code; below zero the signal that killed it."""

    at_s: float
    name: str
    code: int


class Place:
    """One worker's place in the crew: whichever process it is at the moment."""

    def __init__(
        self, name: str, settings: Mapping[str, Any], log: Path, note: Callable[[Exit], None], flaws: Sequence[str] = ()
    ) -> None:
        self.name = name
        self._settings = settings
        self._flaws = flaws
        self._log = log
        self._note = note
        self._over = threading.Event()
        self._resting = False
        self._starting = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._spawn()
        self._thread = threading.Thread(target=self._tend, name=f"place-{name}", daemon=True)
        self._thread.start()

    @property
    def client_id(self) -> str:
        """What its clients call themselves."""
        return f"enricher-{self.name}"

    @property
    def pid(self) -> int | None:
        """The running process, if there is one."""
        process = self._process
        return process.pid if process and process.poll() is None else None

    @property
    def cpu_s(self) -> float:
        """Processor time of the running process so far."""
        try:
            times = psutil.Process(self.pid).cpu_times()
        except psutil.NoSuchProcess:
            return 0.0
        return float(times.user + times.system)

    def send(self, number: signal.Signals) -> None:
        """A signal, if there is a process."""
        if process := self._process:
            process.send_signal(number)

    def tell(self, command: str) -> None:
        """One of the worker's commands."""
        process = self._process
        assert process
        assert process.stdin
        process.stdin.write(f"{command}\n".encode())
        process.stdin.flush()

    def rest(self) -> None:
        """End it in good order, and do not start it again until `wake`. Blocks until it is gone."""
        with self._starting:
            self._resting = True
        deadline_s = time.monotonic() + _LEAVE_S
        while self.pid is not None:
            self.send(signal.SIGTERM if time.monotonic() < deadline_s else signal.SIGKILL)
            self._wait_for_end(_LEAVE_S)

    def wake(self) -> None:
        """Start it."""
        self._resting = False

    def retire(self, number: signal.Signals = signal.SIGTERM) -> None:
        """End it and do not start it again. Blocks until it is gone."""
        self._over.set()
        self.send(signal.SIGCONT)
        self.send(number)
        self._thread.join(_LEAVE_S)
        if self._process and self._process.poll() is None:
            self._process.kill()
        self._thread.join()

    def _spawn(self) -> None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("ENRICHER_")}
        environment["PYTHONPATH"] = os.pathsep.join([str(SCRIPTS), *filter(None, [os.environ.get("PYTHONPATH")])])
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tools.chaos.worker", *self._flaws],
                stdin=subprocess.PIPE,
                stderr=log,
                stdout=log,
                env=environment,
                cwd=self._log.parent,
                start_new_session=True,
            )
        assert self._process.stdin
        self._process.stdin.write(orjson.dumps(self._settings) + b"\n")
        self._process.stdin.flush()

    def _wait_for_end(self, timeout_s: float) -> None:
        process = self._process
        if process:
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout_s)

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
            while not self._spawned():
                if self._over.wait(_LOOK_S):
                    return

    def _spawned(self) -> bool:
        """Start it unless it rests."""
        with self._starting:
            if not self._resting:
                self._spawn()
            return not self._resting


class Crew:
    """Workers by name. `settings_of` gives each its settings; logs go to `folder`."""

    def __init__(self, names: list[str], settings_of: Callable[[str], Mapping[str, Any]], folder: Path) -> None:
        self._settings_of = settings_of
        self._folder = folder
        self.exits: list[Exit] = []
        self.places: dict[str, Place] = {}
        for name in names:
            self.add(name)

    def add(self, name: str, flaws: Sequence[str] = ()) -> Place:
        """One more, without the defences that `flaws` names."""
        place = Place(name, self._settings_of(name), self._folder / f"{name}.log", self.exits.append, flaws)
        self.places[name] = place
        return place

    def remove(self, name: str, number: signal.Signals = signal.SIGTERM) -> None:
        """One less, for good."""
        self.places.pop(name).retire(number)

    def rest(self) -> None:
        """End all in good order, side by side, and start none until `wake`."""
        self._each(Place.rest)

    def wake(self) -> None:
        """Start all that rest."""
        self._each(Place.wake)

    def exits_since(self, at_s: float) -> list[Exit]:
        """Who ended after that moment."""
        return [each for each in self.exits if each.at_s >= at_s]

    def close(self) -> None:
        """End all, side by side."""
        self._each(Place.retire)
        self.places.clear()

    def _each(self, do: Callable[[Place], None]) -> None:
        threads = [threading.Thread(target=do, args=[place]) for place in self.places.values()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
