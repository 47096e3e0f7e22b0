"""Answers one connection of the proxy: passes requests on, or does what the current fault says."""

from __future__ import annotations

import http.client
import json
import time
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING

from tools.registry.faults import ANSWERS, SLOW_S, Answer, Fault

if TYPE_CHECKING:
    from tools.registry.proxy import FaultProxy

_TARGET_S = 60.0
_DRIP_S = 0.2


class Handler(BaseHTTPRequestHandler):
    """One connection, kept open over several requests as a registry does."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1  # one segment per answer

    @property
    def proxy(self) -> FaultProxy:
        """The proxy that this connection belongs to."""
        proxy: FaultProxy = self.server.proxy  # type: ignore[attr-defined]  # our own server class
        return proxy

    def setup(self) -> None:
        super().setup()
        self.proxy.opened(self.connection)

    def finish(self) -> None:
        self.proxy.closed(self.connection)
        try:
            super().finish()
        except OSError:
            self.close_connection = True

    def handle(self) -> None:
        """Serve until the client or a fault ends the connection."""
        try:
            super().handle()
        except OSError:
            self.close_connection = True

    def do_GET(self) -> None:
        self._serve()

    do_POST = do_PUT = do_DELETE = do_GET  # noqa: N815  the base class looks for these names

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the base class's name
        """Silence: tests read `FaultProxy.requests`."""

    def _serve(self) -> None:
        proxy, fault = self.proxy, self.proxy.current
        path = self.path.removeprefix(proxy.target.path)
        proxy.requests[f"{self.command} {path}"] += 1
        content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if path in proxy.forbidden:
            self._send(ANSWERS[Fault.FORBIDDEN])
        elif fault in ANSWERS:
            self._send(ANSWERS[fault])
        elif fault is Fault.REDIRECT_LOOP:
            self._send(Answer(302, "text/html", b"", headers=(("Location", self.path),)))
        elif fault is Fault.HANGS or fault is Fault.DOWN:
            proxy.changed.wait()
            self.close_connection = True
        else:
            self._send_slowly(fault, self.passed_on(path, content))

    def _send_slowly(self, fault: Fault | None, answer: Answer) -> None:
        """A right answer, or what the fault leaves of it."""
        if fault is Fault.SLOW:
            time.sleep(SLOW_S)
        if fault is Fault.CUT_OFF:
            self._head(answer, len(answer.body))
            self.wfile.write(answer.body[: len(answer.body) // 2])
            self.close_connection = True
        elif fault is Fault.DRIPS:
            self._drip(answer)
        else:
            self._send(answer)

    def passed_on(self, path: str, content: bytes) -> Answer:
        """The answer of the registry to this request."""
        proxy = self.proxy
        target = http.client.HTTPConnection(proxy.target.hostname or "", proxy.target.port, timeout=_TARGET_S)
        try:
            sent = {name: self.headers[name] for name in ("Content-Type", "Accept") if name in self.headers}
            target.request(self.command, proxy.target.path + path, content or None, sent)
            response = target.getresponse()
            body = response.read()
            return Answer(response.status, response.getheader("Content-Type", ""), body)
        except (OSError, http.client.HTTPException) as error:
            body = json.dumps({"error_code": 50003, "message": f"the proxy got no answer: {error}"}).encode()
            return Answer(502, "application/json", body)
        finally:
            target.close()

    def _send(self, answer: Answer) -> None:
        self._head(answer, len(answer.body))
        self.wfile.write(answer.body)
        self.wfile.flush()

    def _head(self, answer: Answer, size_bytes: int) -> None:
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.content_type)
        self.send_header("Content-Length", str(size_bytes))
        for name, value in answer.headers:
            self.send_header(name, value)
        self.end_headers()

    def _drip(self, answer: Answer) -> None:
        changed = self.proxy.changed
        self._head(answer, len(answer.body))
        self.wfile.flush()
        for byte in answer.body:
            self.wfile.write(bytes([byte]))
            self.wfile.flush()
            if changed.wait(_DRIP_S):
                break
        self.close_connection = True
