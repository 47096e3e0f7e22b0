"""A small schema registry over HTTP that misbehaves on demand, on a port of this machine."""

from __future__ import annotations

import json
import re
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

from support.patience import PATIENCE_S

Answer = tuple[int, bytes]
Behaviour = Callable[["Handler"], Answer | None]
"""Answers instead of the registry; None if it has written its answer itself."""


def told(status: int, code: int, message: str) -> Answer:
    """An error as registries tell it."""
    return status, json.dumps({"error_code": code, "message": message}).encode()


def status(number: int, body: bytes = b"<html>a proxy</html>") -> Behaviour:
    """An answer that does not come from a registry."""
    return lambda _handler: (number, body)


def drip(handler: Handler) -> None:
    """A byte now and then: each read is quick, and the headers never end."""
    with suppress(OSError):
        handler.wfile.write(b"HTTP/1.1 200 OK\r\n")
        while not handler.registry.closing.wait(0.02):
            handler.wfile.write(b"X-More: to come\r\n")
            handler.wfile.flush()


def drip_body(handler: Handler) -> None:
    """The same in the body."""
    with suppress(OSError):
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n{")
        while not handler.registry.closing.wait(0.02):
            handler.wfile.write(b" ")
            handler.wfile.flush()


def endless(handler: Handler) -> None:
    """A body of 200 MB; counts what it could send."""
    with suppress(OSError):
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 200000000\r\n\r\n")
        for _ in range(200):
            handler.wfile.write(b" " * 1_000_000)
            handler.registry.sent_bytes += 1_000_000


def silent(handler: Handler) -> None:
    """No answer until the end."""
    handler.registry.closing.wait(PATIENCE_S)


def babble(handler: Handler) -> None:
    """Not HTTP at all."""
    handler.wfile.write(b"\x00\x00\x00\x04\x7f\xff\r\n" * 10)
    handler.close_connection = True


def hang_up(handler: Handler) -> None:
    """The connection ends without an answer."""
    handler.close_connection = True


@dataclass(slots=True)
class Registry:
    """What is registered, what was asked, and how it behaves."""

    schemas: dict[str, dict[str, object]] = field(default_factory=dict)
    """By id or GUID."""
    versions: dict[tuple[str, str], dict[str, object]] = field(default_factory=dict)
    has_guids: bool = True
    behaviour: Behaviour | None = None
    only: str | None = None
    """Behave so only for this id."""
    only_path: str = ""
    """Behave so only for paths that begin so."""
    requests: list[tuple[float, str, str]] = field(default_factory=list)
    """Time, method, path."""
    authorizations: list[str | None] = field(default_factory=list)
    sent_bytes: int = 0
    url: str = ""
    closing: threading.Event = field(default_factory=threading.Event)

    @property
    def asked(self) -> list[str]:
        """The ids that were asked for."""
        return [match[1] for _, _, path in self.requests if (match := re.match(r"/schemas/(?:ids|guids)/(.+)", path))]

    def answer(self, method: str, path: str, body: bytes) -> Answer:  # noqa: C901, PLR0911, PLR0912  one line per path
        """As a registry does."""
        parts = [unquote(part) for part in urlsplit(path).path.strip("/").split("/")]
        match (method, *parts):
            case ("GET", "schemas", "guids", _) if not self.has_guids:
                return told(404, 404, "HTTP 404 Not Found")
            case ("GET", "schemas", "types"):
                return 200, b'["JSON", "PROTOBUF", "AVRO"]'
            case ("GET", "schemas", "ids" | "guids", name):
                found = self.schemas.get(name)
                return (200, json.dumps(found).encode()) if found else told(404, 40403, f"Schema {name} not found")
            case ("GET", "subjects", subject, "versions", version):
                found = self.versions.get((subject, version))
                return (200, json.dumps(found).encode()) if found else told(404, 40402, "Version not found")
            case ("GET", "subjects", subject, "versions"):
                numbers = [int(version) for name, version in self.versions if name == subject and version != "latest"]
                return (200, json.dumps(numbers).encode()) if numbers else told(404, 40401, "Subject not found")
            case ("GET", "subjects"):
                return 200, json.dumps(sorted({subject for subject, _ in self.versions})).encode()
            case ("POST", "subjects", subject):
                return self._look_up(subject, json.loads(body)["schema"])
            case ("POST", "subjects", subject, "versions"):
                return self._register(subject, json.loads(body))
            case ("POST", "compatibility", "subjects", _, "versions"):
                bad = "incompatible" in json.loads(body)["schema"]
                return 200, json.dumps({"is_compatible": not bad, "messages": ["it breaks"] * bad}).encode()
            case ("GET", "config", "own"):
                return 200, b'{"compatibilityLevel": "FULL"}'
            case ("GET", "config", _):
                return told(404, 40408, "no level of its own")
            case ("GET", "config"):
                return 200, b'{"compatibilityLevel": "BACKWARD"}'
            case ("PUT", "config", _):
                return 200, body
        return told(404, 404, "HTTP 404 Not Found")

    def _look_up(self, subject: str, text: str) -> Answer:
        for (name, _), version in self.versions.items():
            if name == subject and version["schema"] == text:
                return 200, json.dumps(version).encode()
        return told(404, 40403, "Schema not found")

    def _register(self, subject: str, body: dict[str, object]) -> Answer:
        if "invalid" in str(body["schema"]):
            return told(422, 42201, "Invalid schema")
        if "incompatible" in str(body["schema"]):
            return told(409, 409, "incompatible with an earlier one")
        version = {"subject": subject, "version": 1, "id": 17, **body}
        self.versions[subject, "1"] = self.versions[subject, "latest"] = self.schemas["17"] = version
        return 200, b'{"id": 17}'


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    registry: Registry

    def _serve(self) -> None:
        registry = self.registry
        registry.requests.append((time.monotonic(), self.command, self.path))
        registry.authorizations.append(self.headers.get("Authorization"))
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        behaviour = registry.behaviour
        concerned = self.path.startswith(registry.only_path)
        if behaviour and concerned and (registry.only is None or self.path.endswith(f"/{registry.only}")):
            answer = behaviour(self)
        else:
            answer = registry.answer(self.command, self.path, body)
        if answer:
            self.send_response(answer[0])
            if 300 <= answer[0] < 400:
                self.send_header("Location", "http://elsewhere.invalid/")
            self.send_header("Content-Length", str(len(answer[1])))
            self.end_headers()
            with suppress(OSError):
                self.wfile.write(answer[1])

    do_GET = do_POST = do_PUT = _serve  # noqa: N815  http.server's names

    def log_message(self, *_arguments: object) -> None:
        """Say nothing."""


class _Server(ThreadingHTTPServer):
    request_queue_size = 128  # with the default of 5, some of eight connections at once are made a second later


@contextmanager
def serving(
    registry: Registry | None = None, *, port: int = 0, tls: ssl.SSLContext | None = None
) -> Iterator[Registry]:
    """Serve a registry while the body runs."""
    registry = registry or Registry()
    registry.closing.clear()
    server = _Server(("127.0.0.1", port), type("Bound", (Handler,), {"registry": registry}))
    server.daemon_threads = True
    if tls:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    registry.url = f"{'https' if tls else 'http'}://127.0.0.1:{server.server_port}"
    try:
        yield registry
    finally:
        registry.closing.set()
        server.shutdown()
        server.server_close()
        thread.join()
