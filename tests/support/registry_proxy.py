"""An HTTP proxy in front of a registry, which can be down, and which adds the GUIDs of schemas that Apicurio lacks.

    with Registry() as registry, RegistryProxy(registry.url) as proxy:
        with proxy.down():
            ...

Confluent's registry has GUIDs since version 8.0. The proxy makes them up from ids, so that Confluent's own serializers can
write header ids. What a worker does with the answer is tested for real; that a registry assigns the GUID is not.
"""

from __future__ import annotations

import http.client
import json
import socket
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import ThreadingHTTPServer
from typing import NamedTuple
from urllib.parse import urlsplit

from support.http_serving import QuietHandler
from tools.ports import free_ports
from tools.waiting import Closing

HOST = "127.0.0.1"
_TARGET_S = _END_S = 60.0
_GUID_PATH = "/schemas/guids/"
_BASE = uuid.UUID("5c4e3a00-9d7b-4c11-8e52-000000000000").int


class Answer(NamedTuple):
    """A whole response."""

    status: int
    content_type: str
    body: bytes


class _Handler(QuietHandler):
    """One connection, kept open over several requests as a registry does."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1  # one segment per answer
    proxy: RegistryProxy

    def setup(self) -> None:
        """Register the connection, which `down` cuts."""
        super().setup()
        self.proxy.connections.add(self.connection)

    def handle(self) -> None:
        """Serve until the client ends the connection, or it is cut."""
        with suppress(OSError):
            super().handle()
        self.proxy.connections.discard(self.connection)

    def _serve(self) -> None:
        status, kind, body = self._answer_to(self.path.removeprefix(self.proxy.target.path), self.content())
        self.answer(status, body, Content_Type=kind)

    do_GET = do_POST = do_PUT = do_DELETE = _serve  # noqa: N815  the base class looks for these names

    def _answer_to(self, path: str, content: bytes) -> Answer:
        """The registry's answer, with the GUID if it names an id."""
        if path.startswith(_GUID_PATH):
            number = _id_of(path)
            if number is None:
                return Answer(404, "application/json", b'{"error_code":40403,"message":"Schema not found"}')
            path = f"/schemas/ids/{number}"
        target = http.client.HTTPConnection(self.proxy.target.hostname or "", self.proxy.target.port, timeout=_TARGET_S)
        try:
            sent = {name: self.headers[name] for name in ("Content-Type", "Accept") if name in self.headers}
            target.request(self.command, self.proxy.target.path + path, content or None, sent)
            response = target.getresponse()
            return Answer(response.status, response.getheader("Content-Type", ""), _with_guid(response.read()))
        finally:
            target.close()


class RegistryProxy(Closing):
    """Passes requests on to `target`, a registry's URL, except while it is down."""

    def __init__(self, target: str) -> None:
        self.target = urlsplit(target)
        self.connections: set[socket.socket] = set()
        self._port = free_ports(1)[0]
        self._listen()

    @property
    def url(self) -> str:
        """The registry's URL through this proxy."""
        return f"http://{HOST}:{self._port}{self.target.path}"

    @contextmanager
    def down(self) -> Iterator[None]:
        """Refuse connections, and cut the open ones, for the time of a block."""
        self.close()
        try:
            yield
        finally:
            self._listen()

    def _listen(self) -> None:
        self._server = ThreadingHTTPServer((HOST, self._port), type("Bound", (_Handler,), {"proxy": self}))
        self._server.daemon_threads, self._server.block_on_close = True, False
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening and cut what is open, so that kept connections do not outlive the listening socket."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(_END_S)
        for connection in [*self.connections]:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


def _id_of(path: str) -> int | None:
    """The id of the GUID in a path; None if it is none of ours."""
    try:
        number = uuid.UUID(path.removeprefix(_GUID_PATH).partition("?")[0]).int
    except ValueError:
        return None
    return number ^ _BASE if number >> 32 == _BASE >> 32 else None


def _with_guid(body: bytes) -> bytes:
    """An answer that names an id, with the GUID; any other as it is."""
    try:
        document = json.loads(body)
    except ValueError:
        return body
    if not isinstance(document, dict) or not isinstance(document.get("id"), int):
        return body
    return json.dumps({**document, "guid": str(uuid.UUID(int=_BASE | document["id"]))}).encode()
