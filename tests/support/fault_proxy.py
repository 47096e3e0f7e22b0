"""An HTTP proxy in front of a registry that can be told to go wrong, in the ways that registries and their proxies do.

    with Registry() as registry, FaultProxy(registry.url) as proxy:
        with proxy.fault(Fault.DOWN):
            ...

Its threads end with it; its methods may be called from any thread.
"""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
import uuid
from collections import Counter
from contextlib import contextmanager, suppress
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, ClassVar, NamedTuple
from urllib.parse import urlsplit

from tools.ports import free_ports
from tools.waiting import Closing

if TYPE_CHECKING:
    from collections.abc import Iterator

SLOW_S = 2.0
"""How long `SLOW` takes for each answer."""


class Fault(Enum):
    """One way of going wrong. All but the last one mean that the registry is not there, not that a schema is unknown."""

    DOWN = "connections are refused, open ones are cut"
    HANGS = "requests are taken and never answered"
    DRIPS = "an answer comes at one byte in 0.2 s"
    SLOW = "answers are right and take 2 s"
    CUT_OFF = "answers end in the middle"
    ERROR = "500 with an error code of the registry"
    UNAVAILABLE = "503 with a page of a load balancer"
    TOO_MANY = "429 with Retry-After"
    UNAUTHORIZED = "401"
    FORBIDDEN = "403"
    NOT_FOUND_PAGE = "404 with a page of a load balancer, or of a path that does not exist"
    NOT_FOUND_EMPTY = "404 with an empty body that claims to be JSON, as Apicurio answers for unknown paths"
    GARBAGE = "200 with bytes that are no JSON"
    OTHER_JSON = "200 with JSON that is no schema"
    PAGE = "200 with the page of a captive portal"
    REDIRECT = "a redirect to another host's login page"
    REDIRECT_LOOP = "a redirect to itself"
    OTHER_SCHEMA = "another schema than before under the same id"


class Answer(NamedTuple):
    """A whole response."""

    status: int
    content_type: str
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()


_JSON = "application/vnd.schemaregistry.v1+json"
_HTML = "text/html"
_OTHER = {"type": "record", "name": "Other", "fields": [{"name": "other", "type": "long"}]}

ANSWERS = {
    Fault.ERROR: Answer(500, _JSON, b'{"error_code":50001,"message":"Error in the backend data store"}'),
    Fault.UNAVAILABLE: Answer(503, _HTML, b"<html><body>503 Service Unavailable</body></html>"),
    Fault.TOO_MANY: Answer(
        429, _JSON, b'{"error_code":42901,"message":"Too many requests"}', headers=(("Retry-After", "1"),)
    ),
    Fault.UNAUTHORIZED: Answer(
        401, _JSON, b'{"error_code":401,"message":"Unauthorized"}', headers=(("WWW-Authenticate", "Basic"),)
    ),
    Fault.FORBIDDEN: Answer(403, _JSON, b'{"error_code":40301,"message":"User is denied operation Read"}'),
    Fault.NOT_FOUND_PAGE: Answer(404, _HTML, b"<html><body>404 page not found</body></html>"),
    Fault.NOT_FOUND_EMPTY: Answer(404, "application/json", b""),
    Fault.GARBAGE: Answer(200, _JSON, bytes(range(256)) * 4),
    Fault.OTHER_JSON: Answer(200, _JSON, b'[{"schema": 7}, null]'),
    Fault.PAGE: Answer(200, _HTML, b"<html><body>Please log in to this network</body></html>"),
    Fault.REDIRECT: Answer(302, _HTML, b"", headers=(("Location", "http://login.invalid/"),)),
    # With a schema's own path in it, so that a program that takes it for a schema would get a wrong decoder.
    Fault.OTHER_SCHEMA: Answer(200, _JSON, json.dumps({"schema": json.dumps(_OTHER)}).encode()),
}
"""The faults that are one whole answer to every request."""


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
        """Register the connection, which a fault may cut."""
        super().setup()
        self.proxy.opened(self.connection)

    def finish(self) -> None:
        """Forget the connection; it may be cut already."""
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
        """Answer as the fault says, or as the registry does."""
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


HOST = "127.0.0.1"
_END_S = 60.0


class FaultProxy(Closing):
    """Passes requests on to `target`, a registry's URL, except while a fault is on."""

    handler: ClassVar[type[Handler]] = Handler
    """Serves each connection."""

    def __init__(self, target: str) -> None:
        self.target = urlsplit(target)
        self.requests: Counter[str] = Counter()
        """Requests by method and path, those that met a fault included; connections refused are not seen."""
        self.current: Fault | None = None
        self.forbidden: set[str] = set()
        """Paths that are answered with `Fault.FORBIDDEN`, whatever else happens."""
        self.changed = threading.Event()
        """Set when the fault that is on ends; what hangs waits for it."""
        self._port = free_ports(1)[0]
        self._sockets: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._server: ThreadingHTTPServer | None = None
        self._thread: threading.Thread | None = None
        self._listen()

    @property
    def url(self) -> str:
        """The registry's URL through this proxy."""
        return f"http://{HOST}:{self._port}{self.target.path}"

    def begin(self, fault: Fault) -> None:
        """Answer all requests with this fault from now on, instead of another one."""
        self.end()
        self.changed = threading.Event()
        self.current = fault
        if fault is Fault.DOWN:
            self._close()

    def end(self) -> None:
        """Pass requests on again; what hangs or drips is cut off."""
        was, self.current = self.current, None
        self.changed.set()
        if was is Fault.DOWN:
            self._listen()

    @contextmanager
    def fault(self, fault: Fault) -> Iterator[None]:
        """One fault for the time of a block."""
        self.begin(fault)
        try:
            yield
        finally:
            self.end()

    def close(self) -> None:
        """End the proxy and cut what is open."""
        self.current = None
        self.changed.set()
        self._close()

    def opened(self, connection: socket.socket) -> None:
        """A connection has begun."""
        with self._lock:
            self._sockets.add(connection)

    def closed(self, connection: socket.socket) -> None:
        """A connection has ended."""
        with self._lock:
            self._sockets.discard(connection)

    def _listen(self) -> None:
        self._server = _Server((HOST, self._port), self.handler, self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), name="registry proxy")
        self._thread.daemon = True
        self._thread.start()

    def _close(self) -> None:
        """Stop listening and cut what is open, so that kept connections do not outlive the listening socket."""
        if self._server is None or self._thread is None:
            return
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(_END_S)
        self._server = None
        with self._lock:
            for connection in self._sockets:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], handler: type[Handler], proxy: FaultProxy) -> None:
        self.proxy = proxy
        super().__init__(address, handler)


# ---- what Apicurio lacks: GUIDs of schemas, which Confluent's registry has since version 8.0, and credentials
# The proxy makes GUIDs up from ids, so that Confluent's own serializers can write header ids. What a worker does with the
# answer is tested for real; that a registry assigns the GUID is not.

AUTHORIZATION = "Basic dXNlcjpwYXNz"
"""The header of `user` with the password `pass`."""
_GUID_PATH = "/schemas/guids/"
_UNKNOWN_GUID = Answer(404, "application/json", b'{"error_code":40403,"message":"Schema not found"}')
_BASE = uuid.UUID("5c4e3a00-9d7b-4c11-8e52-000000000000").int


def guid_of(schema_id: int) -> str:
    """The GUID of this id."""
    return str(uuid.UUID(int=_BASE | schema_id))


def _id_of(path: str) -> int | None:
    """The id of the GUID in a path; None if it is none of ours."""
    try:
        number = uuid.UUID(path.removeprefix(_GUID_PATH).partition("?")[0]).int
    except ValueError:
        return None
    return number ^ _BASE if number >> 32 == _BASE >> 32 else None


def _with_guids(body: bytes) -> bytes:
    """An answer that names an id, with the GUID; any other as it is."""
    try:
        document = json.loads(body)
    except ValueError:
        return body
    if not isinstance(document, dict) or not isinstance(document.get("id"), int):
        return body
    return json.dumps({**document, "guid": guid_of(document["id"])}).encode()


class _GuidHandler(Handler):
    def passed_on(self, path: str, content: bytes) -> Answer:
        """As for an id, with the GUID in the answer."""
        if path.startswith(_GUID_PATH):
            number = _id_of(path)
            if number is None:
                return _UNKNOWN_GUID
            path = f"/schemas/ids/{number}"
        answer = super().passed_on(path, content)
        return Answer(answer.status, answer.content_type, _with_guids(answer.body), answer.headers)


class GuidProxy(FaultProxy):
    """A proxy that also adds GUIDs."""

    handler = _GuidHandler


class _GuardedHandler(Handler):
    def passed_on(self, path: str, content: bytes) -> Answer:
        """Only with the credentials."""
        known = self.headers.get("Authorization") == AUTHORIZATION
        return super().passed_on(path, content) if known else ANSWERS[Fault.UNAUTHORIZED]


class GuardedProxy(FaultProxy):
    """A proxy that answers who does not send `AUTHORIZATION` with 401."""

    handler = _GuardedHandler
