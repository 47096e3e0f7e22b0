"""The HTTP server: GET and HEAD of a fixed set of paths, each request in a daemon thread, all of it bounded.

A connection is one request: whoever dribbles or idles is cut off, and beyond so many at once new ones are turned away. It
tells nobody about errors, files or versions. No TLS and no passwords: a NetworkPolicy or a proxy does that.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import socket
import socketserver
import sys
import threading
import time
from collections.abc import Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit

from enricher.errors import SettingsError
from enricher.health.replies import Asked, Reply, Route, line

log = logging.getLogger(__name__)

USUAL_PORT = 8080
MAX_REQUESTS = 32
"""At the same time: probes, a scraper and some people. The kubelet and Prometheus ask one at a time."""
REQUEST_S = 10.0
"""From the connection to its end. The slowest answer, the metrics of many processes, takes far less."""
_SILENCE_S = 5.0
_TAKEN = {errno.EADDRINUSE, errno.EACCES}
"""The second of a port that Windows keeps for itself."""
_LOOK_EVERY_S = 0.5


class HealthServer:
    """Serves `routes` from `start` to `close`. `port` None: 8080, or any free one where that is taken; 0: any free one.

    Raises SettingsError where the address cannot be listened on.
    """

    def __init__(self, routes: Mapping[str, Route], *, host: str, port: int | None) -> None:
        self._server = _listening(routes, host, port)
        # Looks for requests that take too long as often as it polls.
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(_LOOK_EVERY_S,), name="health", daemon=True
        )

    @property
    def port(self) -> int:
        """Where it listens really."""
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        """For people: an address that stands for all of the machine's is named as its own."""
        host = str(self._server.server_address[0])
        host = {"0.0.0.0": "localhost", "::": "localhost"}.get(host, host)  # noqa: S104  compared, not listened on
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}/"

    def start(self) -> None:
        """Answer from now on."""
        self._thread.start()

    def close(self) -> None:
        """Answer no more. Threads of requests are daemons, and left to themselves."""
        if self._thread.is_alive():
            self._server.shutdown()
        self._server.server_close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()


def _listening(routes: Mapping[str, Route], host: str, port: int | None) -> _Server:
    wanted = USUAL_PORT if port is None else port
    try:
        return _Server(routes, host, wanted)
    except (OSError, UnicodeError) as error:  # the latter of a name that cannot be one of a host
        if port is not None or getattr(error, "errno", None) not in _TAKEN:
            reason = getattr(error, "strerror", None) or error
            message = f"health.host and health.port: cannot listen on {host}:{wanted}: {reason}"
            raise SettingsError(message) from error
        log.warning("port %d is taken: health is served on another one (health.port)", USUAL_PORT)
        return _listening(routes, host, 0)


class _Server(socketserver.ThreadingTCPServer):
    """`http.server`'s own asks the DNS for its name before it listens."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = MAX_REQUESTS
    allow_reuse_address = sys.platform != "win32"  # there it would let a second process take the port over

    def __init__(self, routes: Mapping[str, Route], host: str, port: int) -> None:
        self.routes = routes
        self._slots = threading.BoundedSemaphore(MAX_REQUESTS)
        self._open: dict[socket.socket, float] = {}
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        self.address_family = family
        super().__init__((str(address[0]), int(address[1])), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401  the base class' own
        """In a thread of its own, where there is one left."""
        if not self._slots.acquire(blocking=False):
            self.shutdown_request(request)
            return
        self._open[request] = time.monotonic()
        try:
            super().process_request(request, client_address)
        except BaseException:  # no thread was started that would do it
            self._done(request)
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:  # noqa: ANN401  as above
        """To its end, whatever that is."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._done(request)

    def service_actions(self) -> None:
        """Cut off what takes too long: its thread sees the end of the connection."""
        for request, began_s in list(self._open.items()):
            if time.monotonic() - began_s > REQUEST_S:
                with contextlib.suppress(OSError):
                    request.shutdown(socket.SHUT_RDWR)

    def _done(self, request: socket.socket) -> None:
        self._open.pop(request, None)
        self._slots.release()

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401, ARG002  as above
        """A client that went away is nobody's trouble."""
        log.debug("a request for health ended early")


class _Handler(BaseHTTPRequestHandler):
    """One request: a path to its route."""

    server: _Server
    timeout = _SILENCE_S
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answer."""
        self._send(self._reply())

    def do_HEAD(self) -> None:
        """Answer without the body."""
        self._send(self._reply())

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:  # noqa: ARG002
        """What the base class refuses: in one line, and without what the client sent."""
        # It says "not implemented" of every other method.
        status = HTTPStatus.METHOD_NOT_ALLOWED if code == HTTPStatus.NOT_IMPLEMENTED else HTTPStatus(code)
        headers = {"Allow": "GET, HEAD"} if status is HTTPStatus.METHOD_NOT_ALLOWED else {}
        told = line(status, status.phrase.lower())
        self._send(Reply(told.status, told.content_type, told.body, headers))

    def version_string(self) -> str:
        """Neither ours nor Python's version: it is nobody's business here."""
        return "enricher"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the base class' own
        """Probes come every few seconds."""
        log.debug(format, *args)

    def _reply(self) -> Reply:
        try:
            url = urlsplit(self.path)
        except ValueError:  # an address in brackets that is none
            return line(HTTPStatus.BAD_REQUEST, "bad request")
        route = self.server.routes.get(url.path)
        if route is None:
            return line(HTTPStatus.NOT_FOUND, "not found; / is the status page")
        try:
            return route(Asked(self.headers.get("Accept", ""), dict(parse_qsl(url.query))))
        except Exception:
            log.exception("health cannot answer for %s", url.path)  # the path is one of ours
            return line(HTTPStatus.INTERNAL_SERVER_ERROR, "internal error, see the log")

    def _send(self, reply: Reply) -> None:
        self.close_connection = True
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
