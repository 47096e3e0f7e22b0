"""The cluster of one folder: started by one command, stopped by another.

Its processes are found by their command lines, which name the folder, so there is no pid file that could be stale.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
from platformdirs import user_state_path

from tools.cluster import programs
from tools.cluster.certificates import write_certificates
from tools.cluster.client import Answer, Client
from tools.cluster.errors import ToolsError
from tools.cluster.objects import first_objects, kubeconfig
from tools.cluster.schemas import SOURCES
from tools.cluster.table import chosen, folder_of, needed
from tools.ports import free_ports
from tools.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tools.cluster.programs import Command

_START_TIMEOUT_S = 120.0  # for each wait; on an idle machine all of them together take seconds
_STOP_TIMEOUT_S = 10.0
_TOLD_CHARS = 2000


@dataclass(frozen=True, slots=True)
class Running:
    """Facts about the running cluster that `start` recorded."""

    kubeconfig: str
    api_server: str


def clusters_folder() -> Path:
    """The folder of all clusters: the developer's, and those that test runs start."""
    return user_state_path("enricher") / "clusters"


def default_folder() -> Path:
    """The folder with keys, logs and store of the developer's cluster."""
    return clusters_folder() / "own"


def stop_all() -> int:
    """Stop every cluster, also those that killed test runs left; returns the number of processes."""
    folders = [path for path in clusters_folder().glob("*") if path.is_dir()]
    return sum(Service(folder).stop() for folder in folders)


class Service:
    """The cluster of one folder, seen from outside its processes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self._note = self.folder / "running.json"
        self.client = Client(self.folder / "kubeconfig")
        self._started: list[subprocess.Popen[bytes]] = []  # kept so that Python does not warn that they still run

    def processes(self) -> dict[str, psutil.Process]:
        """The programs of the table that run with an argument inside the folder, by name."""
        found = {}
        names = {command.name for command in programs.all_commands(self.folder)}
        inside = f"={self.folder}{os.sep}"
        for process in psutil.process_iter(["cmdline"]):
            program, *arguments = process.info["cmdline"] or [""]  # a zombie has none, and counts as gone
            if Path(program).name in names and any(inside in argument for argument in arguments):
                found[Path(program).name] = process
        return found

    def running(self) -> Running | None:
        """The running cluster; None also if a part of it has died."""
        wanted = {command.name for command in programs.all_commands(self.folder)}
        if set(self.processes()) != wanted or not self._note.exists():
            return None
        return Running(**json.loads(self._note.read_text(encoding="utf-8")))

    def start(self) -> Running:
        """Start everything and wait until it answers; raises `ToolsError`, and then leaves nothing running."""
        self.stop()
        try:
            return self._start()
        except BaseException:
            self._end_processes()
            raise

    def stop(self) -> int:
        """End all processes, and remove keys, logs and store; returns the number of processes."""
        count = self._end_processes()
        if self._note.exists() or (self.folder / "certificates").exists():
            shutil.rmtree(self.folder, ignore_errors=True)
        return count

    def _start(self) -> Running:
        ports = dict(zip(programs.PORTS, free_ports(len(programs.PORTS)), strict=True))
        certificates = self.folder / "certificates"
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_certificates(certificates)
        self._write_private("kubeconfig", kubeconfig(certificates, ports["apiserver"]))
        self._launch(programs.store(self.folder, ports))
        self._launch(programs.api_server(self.folder, ports))
        self._wait("the API server", lambda: _complaint(self.client.kubectl("get", "--raw=/readyz")))
        self._apply(first_objects(certificates, ports))
        folders = [f"--filename={folder_of(tool)}" for tool in chosen(SOURCES)]
        if complaint := _complaint(self.client.kubectl("apply", "--server-side", *folders)):
            raise ToolsError(complaint)
        self._wait_until("Established", "customresourcedefinitions")  # KEDA looks again only after 10 s
        for command in (*programs.controllers(self.folder, ports), *programs.keda(self.folder, ports)):
            self._launch(command)
        self._wait_until("Ready", "nodes")
        self._wait_until("Available", "apiservices")
        running = Running(str(self.folder / "kubeconfig"), f"https://{programs.HOST}:{ports['apiserver']}")
        self._note.write_text(json.dumps(asdict(running)), encoding="utf-8")
        return running

    def _launch(self, command: Command) -> None:
        """Start a program in a new session, so that it outlives this process and its terminal."""
        with (self.folder / f"{command.name}.log").open("wb") as log:
            process = subprocess.Popen(
                [str(needed(command.name)), *command.arguments],
                env={**os.environ, **command.environment},
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._started.append(process)

    def _apply(self, text: str) -> None:
        """Apply objects as soon as the API server takes them: it says it is ready before its last API is served."""

        def ask() -> str:
            return _complaint(self.client.kubectl("apply", "--server-side", "--filename=-", text=text))

        self._wait("the first objects", ask)

    def _wait_until(self, condition: str, kind: str) -> None:
        """Wait until all objects of a kind have a condition."""
        states = f'{{range .items[*]}}{{.status.conditions[?(@.type=="{condition}")].status}},{{end}}'

        def ask() -> str:
            answer = self.client.kubectl("get", kind, f"--output=jsonpath={states}")
            got = answer.stdout.split(",")[:-1]
            return "" if got and set(got) == {"True"} else answer.stderr or f"not {condition}: {kind} are {got}"

        self._wait(f"{kind} to be {condition}", ask)

    def _wait(self, what: str, ask: Callable[[], str]) -> None:
        """Ask until there is no complaint."""
        complaint = ""

        def ready() -> bool:
            nonlocal complaint
            if complaint := ask():
                self._check_alive()
            return not complaint

        if not wait_until(ready, _START_TIMEOUT_S):
            raise ToolsError(f"waited {_START_TIMEOUT_S:.0f} s for {what}: {complaint}")

    def _check_alive(self) -> None:
        started = {path.stem for path in self.folder.glob("*.log")}
        for name in sorted(started - set(self.processes())):
            said = (self.folder / f"{name}.log").read_text(encoding="utf-8", errors="replace")[-_TOLD_CHARS:]
            raise ToolsError(f"{name} ended while the cluster was starting:\n{said}")

    def _end_processes(self) -> int:
        """Kill all processes: a graceful stop would take longer, and would save only what is removed afterwards."""
        processes = list(self.processes().values())
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(processes, timeout=_STOP_TIMEOUT_S)
        return len(processes)

    def _write_private(self, name: str, text: str) -> None:
        path = self.folder / name
        path.touch(mode=0o600)
        path.write_text(text, encoding="utf-8")


def _complaint(answer: Answer) -> str:
    """The error of a failed command; empty if it succeeded."""
    return answer.stderr.strip() or f"exit code {answer.returncode}" if answer.returncode else ""
