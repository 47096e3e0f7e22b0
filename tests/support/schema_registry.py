"""A schema registry on loopback: as much of Confluent's API as the commands ask for, with its default level BACKWARD.

Compatibility is judged by the rules of `support.compatibility`; that a real registry judges alike is shown with
Apicurio's, in `tests/registry/test_compatibility_registry.py`.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

from support.compatibility import Level, violations

Answer = tuple[int, Any]
_NO_SUBJECT: Answer = (404, {"error_code": 40401, "message": "Subject not found."})


class FakeRegistry:
    """Subjects with versions (id, type, text), and levels. `fails_with`: every answer is this status instead."""

    def __init__(self) -> None:
        self.subjects: dict[str, list[tuple[int, str, str]]] = {}
        self.levels: dict[str, str] = {}
        self.fails_with: int | None = None
        self.says_why = True
        self.judge: Callable[[str, str, Level], list[str]] | None = None
        """Judges two texts instead of our rules."""
        self.changes: list[tuple[str, str]] = []
        """Method and path of each request that changed something."""
        self.url = ""

    def answer(self, method: str, path: str, body: dict[str, Any]) -> Answer:
        """What a request is answered."""
        if self.fails_with is not None:
            return self.fails_with, {"error_code": self.fails_with, "message": "no"}
        parts = [unquote(part) for part in urlsplit(path).path.strip("/").split("/")]
        if parts[0] == "config":
            return self._config(method, path, parts[1] if len(parts) > 1 else "", body)
        if parts[0] == "compatibility":
            return self._compatible(parts[2], body)
        assert parts[0] == "subjects"
        if method == "GET":
            return self._versions(parts[1], parts[3] if len(parts) > 3 else "")
        if len(parts) == 2:
            return self._lookup(parts[1], body)
        return self._register(path, parts[1], body)

    def _config(self, method: str, path: str, subject: str, body: dict[str, Any]) -> Answer:
        if method == "PUT":
            self.changes.append((method, path))
            self.levels[subject] = body["compatibility"]
            return 200, body
        return 200, {"compatibilityLevel": self.levels.get(subject, "BACKWARD")}

    def _told(self, subject: str, body: dict[str, Any]) -> list[str]:
        level = Level(self.levels.get(subject, "BACKWARD"))
        versions = self.subjects.get(subject, [])[None if level.endswith("TRANSITIVE") else -1 :]
        kind = body.get("schemaType", "AVRO")
        judge = self.judge or (lambda old, new, at: [str(each) for each in violations(kind, old, new, at)])
        return [each for _, _, text in versions for each in judge(text, body["schema"], level)]

    def _compatible(self, subject: str, body: dict[str, Any]) -> Answer:
        if subject not in self.subjects:
            return _NO_SUBJECT
        told = self._told(subject, body)
        return 200, {"is_compatible": not told} | ({"messages": told} if self.says_why else {})

    def _versions(self, subject: str, which: str) -> Answer:
        if subject not in self.subjects:
            return _NO_SUBJECT
        count = len(self.subjects[subject])
        if not which:
            return 200, list(range(1, count + 1))
        return 200, self._version(subject, count if which == "latest" else int(which))

    def _version(self, subject: str, number: int) -> dict[str, Any]:
        schema_id, kind, text = self.subjects[subject][number - 1]
        return {"subject": subject, "version": number, "id": schema_id, "schemaType": kind, "schema": text}

    def _lookup(self, subject: str, body: dict[str, Any]) -> Answer:
        for number, (_, _, text) in enumerate(self.subjects.get(subject, ()), 1):
            if text == body["schema"]:
                return 200, self._version(subject, number)
        return (404, {"error_code": 40403, "message": "Schema not found"}) if subject in self.subjects else _NO_SUBJECT

    def _register(self, path: str, subject: str, body: dict[str, Any]) -> Answer:
        self.changes.append(("POST", path))
        if self._told(subject, body):
            return 409, {"error_code": 409, "message": "incompatible"}
        number = 100 + sum(map(len, self.subjects.values()))
        self.subjects.setdefault(subject, []).append((number, body.get("schemaType", "AVRO"), body["schema"]))
        return 200, {"id": number}


@contextmanager
def fake_registry() -> Iterator[FakeRegistry]:
    """A registry that answers at its `url`."""
    registry = FakeRegistry()

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            status, value = registry.answer(self.command, self.path, json.loads(body or b"{}"))
            text = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST = do_PUT = _answer  # noqa: N815  names of the base class

        def log_message(self, *_arguments: object) -> None:
            """Nothing on standard error."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    registry.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
