"""One HTTP request whose headers have come: its path to its route, and the answer back. GET and HEAD, and nothing else.

It tells nobody about errors, files or versions, and repeats nothing that the client sent.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from io import BytesIO
from urllib.parse import parse_qsl, urlsplit

from enricher.health.replies import Asked, Reply, Route, line
from enricher.health.waiting import Connection

log = logging.getLogger(__name__)

_SILENCE_S = 5.0
"""For which a client may take nothing of its answer."""


class Handler(BaseHTTPRequestHandler):
    """One request, whose head has come already: a path to its route."""

    timeout = _SILENCE_S
    protocol_version = "HTTP/1.1"

    def __init__(self, connection: Connection, routes: Mapping[str, Route]) -> None:
        self._connection = connection
        self._routes = routes
        # What the base class wants a server for is done here.
        super().__init__(connection.socket, (connection.peer, 0), None)  # type: ignore[arg-type]

    def setup(self) -> None:
        """Reads what has come, and nothing behind it: a GET has no body."""
        self.connection = self._connection.socket
        self.connection.settimeout(self.timeout)
        self.rfile = BytesIO(self._connection.head)
        self.wfile = self.connection.makefile("wb")

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
        route = self._routes.get(url.path)
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
