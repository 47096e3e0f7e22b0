"""Answers one HTTP request whose headers have arrived. GET and HEAD only.

Answers contain no error text, file name or version, and nothing that the client sent.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from io import BytesIO
from urllib.parse import parse_qsl, urlsplit

from enricher.health.routes import Reply, Request, Route, line
from enricher.health.waiting import Connection

log = logging.getLogger(__name__)

_SILENCE_S = 5.0
"""How long a client may leave its answer unread."""


class Handler(BaseHTTPRequestHandler):
    """Answers one request, whose head is complete, with the route of its path."""

    timeout = _SILENCE_S
    protocol_version = "HTTP/1.1"

    def __init__(self, connection: Connection, routes: Mapping[str, Route]) -> None:
        self._connection = connection
        self._routes = routes
        # The base class uses its server only for what is overridden here.
        super().__init__(connection.socket, (connection.peer, 0), None)  # type: ignore[arg-type]

    def setup(self) -> None:
        """Read from the bytes received so far: a GET has no body."""
        self.connection = self._connection.socket
        self.connection.settimeout(self.timeout)
        self.rfile = BytesIO(self._connection.head)
        self.wfile = self.connection.makefile("wb")

    def do_GET(self) -> None:
        """Answer."""
        self._send(self._reply())

    def do_HEAD(self) -> None:
        """Answer, without the body."""
        self._send(self._reply())

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
        except ValueError:  # brackets around something that is no address
            return line(HTTPStatus.BAD_REQUEST, "bad request")
        route = self._routes.get(url.path)
        if route is None:
            return line(HTTPStatus.NOT_FOUND, "not found; / is the status page")
        try:
            return route(Request(self.headers.get("Accept", ""), dict(parse_qsl(url.query))))
        except Exception:
            log.exception("health cannot answer %s", url.path)  # the path is one of ours
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
