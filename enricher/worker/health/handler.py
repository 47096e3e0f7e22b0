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

from enricher.worker.health.routes import Reply, Request, Route, line

log = logging.getLogger(__name__)


class Handler(BaseHTTPRequestHandler):
    """Answers the request whose head is `received`; a GET has no body. Sends nothing: see `answer`."""

    protocol_version = "HTTP/1.1"

    def __init__(self, received: bytes, peer: str, routes: Mapping[str, Route]) -> None:
        self._received = received
        self._routes = routes
        self._body = b""
        # The base class uses its socket and its server only for what is overridden here.
        super().__init__(None, (peer, 0), None)  # type: ignore[arg-type]

    def answer(self) -> tuple[bytes, bytes]:
        """The head and the body of the answer; a large body is not copied. Both are empty if there is no answer."""
        return self._head.getvalue(), self._body

    def setup(self) -> None:
        """Read the received bytes, and write into memory."""
        self.rfile = BytesIO(self._received)
        self.wfile = self._head = BytesIO()

    def finish(self) -> None:
        """Do nothing: the base class would close the answer."""

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
            self._body = reply.body
