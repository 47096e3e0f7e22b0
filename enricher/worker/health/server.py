"""The HTTP server: GET and HEAD of a fixed set of paths, with the servers of the standard library.

Each connection carries one request, in its own thread, and connections beyond the limit are closed without an answer. Probes
have a server and a port to themselves, so that nobody who reads the page or the metrics delays the kubelet. TLS,
authentication and clients that mean harm are left to a NetworkPolicy or a proxy. Answers contain no error text, file name or
version, and nothing that the client sent.
"""

from __future__ import annotations

import errno
import logging
import os
import socket
import threading
from collections.abc import Mapping
from dataclasses import replace
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingTCPServer
from typing import Any, Self, cast
from urllib.parse import parse_qsl, urlsplit

from enricher.errors import SettingsError
from enricher.worker.health.routes import Reply, Request, Route, line

log = logging.getLogger(__name__)

MAX_CONNECTIONS = 128
"""The most open connections. Each has a thread and a file descriptor; a scraper has one, a browser a few."""
IDLE_S = 5.0
"""The longest wait for the next bytes of a request, and for the client to take the answer."""
_TAKEN = {errno.EADDRINUSE, errno.EACCES}
"""The errors for a port that is taken; EACCES means that Windows has reserved it."""
_BACKLOG = 1024
"""Connections that the kernel keeps until they are accepted."""
_STOP_WITHIN_S = 0.1


class _Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    protocol_version = "HTTP/1.1"
    timeout = IDLE_S

    def do_GET(self) -> None:
        """Answer the request."""
        self._send(self._reply())

    do_HEAD = do_GET  # noqa: N815  `_send` leaves out the body

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:  # noqa: ARG002
        """Answer requests that the base class refuses, in one line that does not quote the client."""
        # The base class answers "not implemented" to every other method.
        status = HTTPStatus.METHOD_NOT_ALLOWED if code == HTTPStatus.NOT_IMPLEMENTED else HTTPStatus(code)
        headers = {"Allow": "GET, HEAD"} if status is HTTPStatus.METHOD_NOT_ALLOWED else {}
        self._send(replace(line(status, status.phrase.lower()), headers=headers))

    def version_string(self) -> str:
        """Return a name without versions, which would help only an attacker."""
        return "enricher"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the base class's name
        """Log at level debug: probes come every few seconds."""
        log.debug(format, *args)

    def _reply(self) -> Reply:
        try:
            url = urlsplit(self.path)
        except ValueError:  # for example brackets around something that is not an address
            return line(HTTPStatus.BAD_REQUEST, "bad request")
        routes = cast("HealthServer", self.server).routes
        route = routes.get(url.path)
        if route is None:
            return line(HTTPStatus.NOT_FOUND, f"not found; this port has {', '.join(routes)}")
        try:
            return route(Request(self.headers.get("Accept", ""), dict(parse_qsl(url.query))))
        except Exception:
            log.exception("health cannot answer %s", url.path)  # the path is one of ours
            return line(HTTPStatus.INTERNAL_SERVER_ERROR, "internal error, see the log")

    def _send(self, reply: Reply) -> None:
        self.send_response(reply.status)
        headers = {
            "Content-Type": reply.content_type,
            "Content-Length": str(len(reply.body)),
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
            "Connection": "close",
            **reply.headers,
        }
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(reply.body)


class HealthServer(ThreadingTCPServer):
    """Serves `routes` from `__enter__` to `close`. `port` None: `usual_port`, or any free port if that is taken; 0: any.

    `setting`: the name of the port's setting, for errors. Raises SettingsError if it cannot listen on the address.
    """

    daemon_threads = True  # so that neither `close` nor the end of the process waits for an answer

    def __init__(
        self,
        routes: Mapping[str, Route],
        *,
        host: str,
        port: int | None,
        usual_port: int,
        setting: str,
    ) -> None:
        self.routes = routes
        listener = _listen(host, port, usual_port, setting)
        super().__init__(listener.getsockname()[:2], _Handler, bind_and_activate=False)
        self.socket.close()  # the base class's own, which has another family and is not bound
        self.socket = listener
        self._free = threading.BoundedSemaphore(MAX_CONNECTIONS)
        self._thread = threading.Thread(target=self.serve_forever, args=[_STOP_WITHIN_S], name="health", daemon=True)

    @property
    def port(self) -> int:
        """The port on which it listens."""
        return int(self.server_address[1])

    @property
    def url(self) -> str:
        """The address as a URL, with `localhost` instead of a wildcard."""
        host = connectable(str(self.server_address[0]))
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}/"

    def close(self) -> None:
        """Stop answering. Requests that are being answered are not waited for."""
        if self._thread.is_alive():
            self.shutdown()
        self.server_close()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def process_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401  as the base class has it
        """Answer in a thread, or close the connection if there are too many."""
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:  # noqa: ANN401  as the base class has it
        """Answer, and make room for another connection whatever happens."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: object, client_address: object) -> None:  # noqa: ARG002  the base class prints both
        """Log at level debug: usually a client that went away."""
        log.debug("a request for health ended early")


def connectable(host: str) -> str:
    """The host to connect to for what listens on `host`: `localhost` for a wildcard."""
    return "localhost" if host in {"0.0.0.0", "::"} else host  # noqa: S104  only compared


def _listen(host: str, port: int | None, usual_port: int, setting: str) -> socket.socket:
    """A listening socket. `::` is every address, also without IPv6. Raises SettingsError."""
    if host == "::" and not socket.has_dualstack_ipv6():  # the kernel has no IPv6
        host = "0.0.0.0"  # noqa: S104  as the setting says
    wanted = usual_port if port is None else port
    try:
        # `create_server` does not reuse the address on Windows, where a second process could take over the port.
        family = socket.getaddrinfo(host, wanted, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        both = family is socket.AF_INET6 and socket.has_dualstack_ipv6()
        return socket.create_server((host, wanted), family=family, backlog=_BACKLOG, dualstack_ipv6=both)
    except (OSError, UnicodeError) as error:  # UnicodeError: the name cannot be a host name
        if port is not None or getattr(error, "errno", None) not in _TAKEN:
            # `create_server` adds the address to the text of the error.
            reason = os.strerror(number) if (number := getattr(error, "errno", None)) in _TAKEN else error
            message = f"health.host and {setting}: cannot listen on {host}:{wanted}: {reason}"
            raise SettingsError(message) from error
        log.warning("port %d is taken; serving health on another port (%s)", usual_port, setting)
        return _listen(host, 0, usual_port, setting)
