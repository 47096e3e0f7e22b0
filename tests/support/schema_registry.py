"""A schema registry on a port of this machine: as much of Confluent's API as our client asks for, wrong on demand.

How a real one judges is shown with Apicurio's (`tests/registry/test_compatibility_registry.py`): this one asks `judge`.
"""

from __future__ import annotations

import json
import re
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from support.http_serving import QuietHandler, http_server
from support.patience import PATIENCE_S

Answer = tuple[int, bytes]
Behaviour = Callable[["Handler"], Answer | None]
"""Answers instead of the registry; None if it has written its answer itself."""
Judge = Callable[[str, str, str], list[str]]
"""An older schema of the subject, a new one, and the level; returns what stands in the way."""


def registry_error(status: int, code: int, message: str) -> Answer:
    """An error as registries answer it."""
    return status, json.dumps({"error_code": code, "message": message}).encode()


def _json(value: object) -> Answer:
    return 200, json.dumps(value).encode()


def status(number: int, body: bytes = b"<html>a proxy</html>") -> Behaviour:
    """An answer that does not come from a registry."""
    return lambda _handler: (number, body)


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


def cut_off(handler: Handler) -> None:
    """The answer ends in its middle."""
    handler.send_response(200)
    handler.send_header("Content-Length", "100")
    handler.end_headers()
    handler.wfile.write(b'{"schema": "x"')
    handler.close_connection = True


def _refuse_marked(_old: str, new: str, _level: str) -> list[str]:
    return ["it breaks"] * ("incompatible" in new)


@dataclass(slots=True)
class Registry:
    """What is registered, what was asked, and how it behaves."""

    schemas: dict[str, dict[str, object]] = field(default_factory=dict)
    """By id or GUID."""
    versions: dict[tuple[str, str], dict[str, object]] = field(default_factory=dict)
    levels: dict[str, str] = field(default_factory=lambda: {"": "BACKWARD"})
    """By subject; under the empty name the one of all others."""
    judge: Judge = _refuse_marked
    says_why: bool = True
    has_guids: bool = True
    behaviour: Behaviour | None = None
    only: str | None = None
    """Behave so only for this id."""
    only_path: str = ""
    """Behave so only for paths that begin so."""
    requests: list[tuple[float, str, str]] = field(default_factory=list)
    """Time, method, path."""
    authorizations: list[str | None] = field(default_factory=list)
    url: str = ""
    closing: threading.Event = field(default_factory=threading.Event)

    @property
    def asked(self) -> list[str]:
        """The ids that were asked for."""
        return [match[1] for _, _, path in self.requests if (match := re.match(r"/schemas/(?:ids|guids)/(.+)", path))]

    @property
    def changes(self) -> list[tuple[str, str]]:
        """Method and path of each request to register a schema or to set a level."""
        changing = re.compile(r"POST /subjects/.+/versions|PUT /")
        return [(method, path) for _, method, path in self.requests if changing.match(f"{method} {path}")]

    def add(self, subject: str, kind: object, text: str, number: int | None = None) -> dict[str, object]:
        """Let this be the newest version of the subject; `number`: its id."""
        version = self._count(subject) + 1
        number = 17 + len(self.versions) // 2 if number is None else number
        added = {"subject": subject, "version": version, "id": number, "schemaType": kind, "schema": text}
        self.versions[subject, str(version)] = self.versions[subject, "latest"] = self.schemas[str(number)] = added
        return added

    def answer(self, method: str, path: str, body: bytes) -> Answer:  # noqa: C901, PLR0911  one line per path
        """As a registry does."""
        parts = [unquote(part) for part in urlsplit(path).path.strip("/").split("/")]
        match (method, *parts):
            case ("GET", "schemas", "guids", _) if not self.has_guids:
                return registry_error(404, 404, "HTTP 404 Not Found")
            case ("GET", "schemas", "types"):
                return 200, b'["JSON", "PROTOBUF", "AVRO"]'
            case ("GET", "schemas", "ids" | "guids", name):
                found = self.schemas.get(name)
                return _json(found) if found else registry_error(404, 40403, f"Schema {name} not found")
            case ("GET", "subjects", subject, "versions", version):
                found = self.versions.get((subject, version))
                return _json(found) if found else registry_error(404, 40402, "Version not found")
            case ("GET", "subjects", subject, "versions"):
                count = self._count(subject)
                return _json(list(range(1, count + 1))) if count else registry_error(404, 40401, "Subject not found")
            case ("GET", "subjects"):
                return _json(sorted({subject for subject, _ in self.versions}))
            case ("POST", "subjects", subject):
                return self._look_up(subject, json.loads(body)["schema"])
            case ("POST", "subjects", subject, "versions"):
                return self._register(subject, json.loads(body))
            case ("POST", "compatibility", "subjects", subject, "versions"):
                reasons = self._reasons(subject, json.loads(body)["schema"])
                return _json({"is_compatible": not reasons} | ({"messages": reasons} if self.says_why else {}))
            case ("GET", "config", subject) if subject not in self.levels:
                return registry_error(404, 40408, "no level of its own")
            case ("GET", "config", *subject):
                return _json({"compatibilityLevel": self.levels["".join(subject)]})
            case ("PUT", "config", subject):
                self.levels[subject] = json.loads(body)["compatibility"]
                return 200, body
        return registry_error(404, 404, "HTTP 404 Not Found")

    def _count(self, subject: str) -> int:
        return sum(name == subject and version != "latest" for name, version in self.versions)

    def _look_up(self, subject: str, text: str) -> Answer:
        for (name, _), version in self.versions.items():
            if name == subject and version["schema"] == text:
                return _json(version)
        return registry_error(404, 40403, "Schema not found")

    def _register(self, subject: str, body: dict[str, str]) -> Answer:
        if "invalid" in body["schema"]:
            return registry_error(422, 42201, "Invalid schema")
        if self._reasons(subject, body["schema"]):
            return registry_error(409, 409, "incompatible with an earlier one")
        return _json({"id": self.add(subject, body.get("schemaType", "AVRO"), body["schema"])["id"]})

    def _reasons(self, subject: str, text: str) -> list[str]:
        newest = self.versions.get((subject, "latest"), {"schema": ""})
        return self.judge(str(newest["schema"]), text, self.levels.get(subject, self.levels[""]))


class Handler(QuietHandler):
    """One connection."""

    registry: Registry

    def _serve(self) -> None:
        registry = self.registry
        registry.requests.append((time.monotonic(), self.command, urlsplit(self.path).path))
        registry.authorizations.append(self.headers.get("Authorization"))
        body = self.content()
        behaviour = registry.behaviour
        concerned = self.path.startswith(registry.only_path)
        if behaviour and concerned and (registry.only is None or self.path.endswith(f"/{registry.only}")):
            answer = behaviour(self)
        else:
            answer = registry.answer(self.command, self.path, body)
        if answer:
            number, content = answer
            elsewhere = {"Location": "http://elsewhere.invalid/"} if 300 <= number < 400 else {}
            self.answer(number, content, **elsewhere)

    do_GET = do_POST = do_PUT = _serve  # noqa: N815  http.server's names


@contextmanager
def serving(
    registry: Registry | None = None, *, port: int = 0, tls: ssl.SSLContext | None = None
) -> Iterator[Registry]:
    """Serve a registry while the body runs."""
    registry = registry or Registry()
    registry.closing.clear()
    with http_server(type("Bound", (Handler,), {"registry": registry}), port=port, tls=tls) as registry.url:
        try:
            yield registry
        finally:
            registry.closing.set()
