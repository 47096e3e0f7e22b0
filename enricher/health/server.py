"""The HTTP server: GET and HEAD of a fixed set of paths, each request in a daemon thread, everything bounded.

Each connection carries one request. It gets a thread when its headers are complete (waiting.py), and some threads are
reserved for probes, so that no number of slow or idle clients delays the kubelet. Requests beyond the limits are closed
unanswered. TLS and authentication are left to a NetworkPolicy or a proxy.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import re
import selectors
import socket
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any, Self

from enricher.errors import SettingsError
from enricher.health.handler import Handler
from enricher.health.routes import Route
from enricher.health.slots import Slots
from enricher.health.waiting import Connection, Waiting, hang_up

log = logging.getLogger(__name__)

USUAL_PORT = 8080
REQUEST_S = 10.0
"""From the end of the headers to the end of the answer. The slowest, the metrics of many processes, takes far less."""
_TAKEN = {errno.EADDRINUSE, errno.EACCES}
"""EACCES: the port is reserved by Windows."""
_LOOK_EVERY_S = 0.5
_BACKLOG = 1024
"""Connections that the kernel keeps until they are accepted: a probe must not be lost in a burst of others."""
_ACCEPT_AT_ONCE = 64
_NO_DESCRIPTOR_S = 0.1
_PROBE = re.compile(rb"\s*(?:GET|HEAD) /(?:livez|readyz|startupz)[ ?]")


class HealthServer:
    """Serves `routes` from `start` to `close`. `port` None: 8080, or any free port if that is taken; 0: any free port.

    Raises SettingsError if it cannot listen on the address.
    """

    def __init__(self, routes: Mapping[str, Route], *, host: str, port: int | None) -> None:
        self._server = _listening(routes, host, port)
        self._thread = threading.Thread(target=self._server.serve, name="health", daemon=True)

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self._server.address[1])

    @property
    def url(self) -> str:
        """The address as a URL, with `localhost` instead of a wildcard."""
        host = str(self._server.address[0])
        host = {"0.0.0.0": "localhost", "::": "localhost"}.get(host, host)  # noqa: S104  compared, not listened on
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}/"

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def close(self) -> None:
        """Stop answering. Requests that are being answered are not waited for."""
        self._server.stop()
        if self._thread.is_alive():
            self._thread.join()
        self._server.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()


def _listening(routes: Mapping[str, Route], host: str, port: int | None) -> _Server:
    wanted = USUAL_PORT if port is None else port
    try:
        return _Server(routes, host, wanted)
    except (OSError, UnicodeError) as error:  # UnicodeError: the name cannot be a host name
        if port is not None or getattr(error, "errno", None) not in _TAKEN:
            reason = getattr(error, "strerror", None) or error
            message = f"health.host and health.port: cannot listen on {host}:{wanted}: {reason}"
            raise SettingsError(message) from error
        log.warning("port %d is taken; serving health on another port (health.port)", USUAL_PORT)
        return _listening(routes, host, 0)


class _Server:
    """Listens and waits for requests in one thread, and answers each in its own thread.

    The server of `http.server` starts a thread for each connection before it has sent anything, and resolves its name.
    """

    def __init__(self, routes: Mapping[str, Route], host: str, port: int) -> None:
        self.routes = routes
        self._slots = Slots()
        self._open: dict[socket.socket, float] = {}
        self._listener = _listener(host, port)
        self.address: tuple[Any, ...] = self._listener.getsockname()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._waiting = Waiting(self._selector)
        self._stopping = threading.Event()

    def serve(self) -> None:
        """Serve until `stop`. An error in one connection does not affect others."""
        while not self._stopping.is_set():
            ready = [key.data for key, _ in self._selector.select(_LOOK_EVERY_S)]
            # Requests first: accepting a new connection may close a waiting one.
            for connection in ready:
                if connection is not None and self._waiting.read(connection):
                    self._answer(connection)
            if None in ready:
                self._accept()
            self._waiting.close_late(time.monotonic())
            self._cut_off()

    def stop(self) -> None:
        """Make `serve` return within half a second."""
        self._stopping.set()

    def close(self) -> None:
        """Close the port and the waiting connections. Only after `serve` has returned."""
        self._waiting.close()
        self._selector.close()
        self._listener.close()

    def _accept(self) -> None:
        for _ in range(_ACCEPT_AT_ONCE):
            try:
                accepted, address = self._listener.accept()
            except BlockingIOError:
                return
            except OSError as error:  # no descriptor is left, or the client is gone
                log.debug("a connection for health was lost: %s", error.strerror)
                self._stopping.wait(
                    _NO_DESCRIPTOR_S
                )  # the connection is still pending and would be tried again at once
                return
            accepted.settimeout(0)
            self._waiting.add(Connection(accepted, str(address[0]), time.monotonic()))

    def _answer(self, connection: Connection) -> None:
        """Answer in a new thread, or close the connection if no slot is left."""
        probe = _PROBE.match(connection.head) is not None
        if not self._slots.take(connection.peer, probe=probe):
            hang_up(connection.socket)
            return
        self._open[connection.socket] = time.monotonic()
        thread = threading.Thread(target=self._answered, args=(connection, probe), name="health-request", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the system gives no thread
            self._done(connection, probe=probe)

    def _answered(self, connection: Connection, probe: bool) -> None:  # noqa: FBT001  a thread's argument
        """Answer, and close the connection whatever happens."""
        try:
            Handler(connection, self.routes)
        except Exception:  # noqa: BLE001  usually a client that went away
            log.debug("a request for health ended early")
        finally:
            self._done(connection, probe=probe)

    def _done(self, connection: Connection, *, probe: bool) -> None:
        self._open.pop(connection.socket, None)
        self._slots.give_back(connection.peer, probe=probe)
        hang_up(connection.socket)

    def _cut_off(self) -> None:
        """Shut down connections whose answer takes too long, which ends their threads."""
        for connection, began_s in list(self._open.items()):
            if time.monotonic() - began_s > REQUEST_S:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)


def _listener(host: str, port: int) -> socket.socket:
    """Open a listening socket. Raises OSError, and UnicodeError for an impossible host name."""
    family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        if sys.platform != "win32":  # on Windows it would let a second process take over the port
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((str(address[0]), int(address[1])))
        listener.listen(_BACKLOG)
        listener.settimeout(0)
    except BaseException:
        listener.close()
        raise
    return listener
