"""A search index on a port of this machine: as much of OpenSearch's and Elasticsearch's API as ours asks for.

Versions are judged as the real ones do, deleted documents included; it goes wrong on demand.
"""

from __future__ import annotations

import re
import ssl
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import orjson

from support.aws import header_signature_is_right
from support.http_serving import QuietHandler, http_server
from support.patience import PATIENCE_S

Answer = tuple[int, Any]
"""Status, and what becomes JSON; bytes are sent as they are."""
Behaviour = Callable[["Handler", bytes], Answer | None]
"""Answers a bulk request instead of the index; None if the connection ends without an answer."""


@dataclass(frozen=True, slots=True)
class Held:
    """What the index has under an id; `body` is None once it is deleted."""

    version: int
    body: dict[str, Any] | None


def error(status: int, kind: str, reason: str = "as the test wants it") -> Answer:
    """An error of a whole request."""
    return status, {"error": {"type": kind, "reason": reason}, "status": status}


def refuse(status: int) -> Behaviour:
    """Nothing of it is done."""
    return lambda _handler, _body: error(status, "some_exception")


def cut_before(_handler: Handler, _body: bytes) -> None:
    """The connection ends, and nothing is done."""


def cut_after(handler: Handler, body: bytes) -> None:
    """All is done, and the connection ends before the answer."""
    handler.search.bulk(body)


def garble(_handler: Handler, _body: bytes) -> Answer:
    """A proxy's page, although the status says that all is well."""
    return 200, b"<html>"


def hang(handler: Handler, _body: bytes) -> None:
    """No answer until the end."""
    handler.search.closing.wait(PATIENCE_S)


@dataclass(slots=True)
class SearchServer:
    """One index, and how it behaves. `documents`: by id, the deleted ones included."""

    product: str = "opensearch"
    documents: dict[str, Held] = field(default_factory=dict)
    exists: bool = False
    mapping: dict[str, Any] = field(default_factory=dict)
    templates: dict[str, Any] = field(default_factory=dict)
    behaviours: deque[Behaviour] = field(default_factory=deque)
    """Of the next bulk requests, one each."""
    item_error: Callable[[str, dict[str, Any] | None], tuple[int, str, str] | None] = lambda _id, _body: None
    """Status, type and reason of an action that fails."""
    max_bytes: int = 100_000_000
    """A larger bulk request is answered with 413."""
    failed_shards: int = 0
    """Searches are answered without those."""
    authorization: str | None = None
    """What requests must have in this header."""
    signed_for: str = ""
    """The region and service, such as `eu-west-1/es`, for which Amazon's gateway wants requests to be signed."""
    sizes: list[int] = field(default_factory=list)
    """How many bytes each bulk request had, executed or not."""
    statuses: Counter[int] = field(default_factory=Counter)
    """Of actions."""
    requests: list[tuple[str, str]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    url: str = ""
    closing: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def found(self) -> dict[str, tuple[int, dict[str, Any]]]:
        """What a search finds: version and body by id."""
        return {key: (held.version, held.body) for key, held in self.documents.items() if held.body is not None}

    def answer(self, method: str, path: str, body: bytes) -> Answer:  # noqa: C901, PLR0911  one line per path
        """As both products do."""
        parts = urlsplit(path).path.strip("/").split("/")
        match (method, *parts):
            case ("GET", ""):
                opensearch = {"distribution": "opensearch", "number": "3.9.0"}
                return 200, {"version": opensearch if self.product == "opensearch" else {"number": "9.5.0"}}
            case ("PUT", "_index_template", name):
                self.templates[name] = orjson.loads(body)
                return 200, {"acknowledged": True}
            case ("PUT", name):
                if self.exists:
                    return error(400, "resource_already_exists_exception")
                self.exists, self.mapping = True, orjson.loads(body).get("mappings", {})
                return 200, {"index": name}
            case ("GET", name, "_mapping"):
                return (
                    (200, {name: {"mappings": self.mapping}})
                    if self.exists
                    else error(404, "index_not_found_exception")
                )
            case ("PUT", _, "_mapping"):
                self.mapping |= orjson.loads(body)
                return 200, {"acknowledged": True}
            case ("POST", _, "_refresh"):
                return 200, {}
            case ("POST", _, "_search"):
                return 200, self._hits()
            case ("POST", "_search", "scroll"):
                return 200, self._page([])
            case ("DELETE", "_search", "scroll"):
                return 200, {}
        return error(404, "no_such_path")

    def bulk(self, body: bytes) -> Answer:
        """Execute the actions in order. As both products do, the answer to 200 may be that of failures."""
        items, lines = [], iter(body.split(b"\n"))
        with self.lock:
            self.exists = True
            for line in filter(None, lines):
                [(action, meta)] = orjson.loads(line).items()
                document = orjson.loads(next(lines)) if action == "index" else None
                items.append({action: self._execute(meta, document)})
            self.statuses.update(item["status"] for each in items for item in each.values())
        return 200, {"errors": any("error" in item for each in items for item in each.values()), "items": items}

    def _execute(self, meta: dict[str, Any], body: dict[str, Any] | None) -> dict[str, Any]:
        key = meta["_id"]
        if failure := self.item_error(key, body):
            status, kind, reason = failure
            return {"status": status, "error": {"type": kind, "reason": reason}}
        held = self.documents.get(key)
        given = meta.get("version")
        if given is None:
            version = held.version + 1 if held else 1
        else:
            assert meta["version_type"] == "external_gte"
            version = given
            if held and given < held.version:
                return {"status": 409, "error": {"type": "version_conflict_engine_exception", "reason": "older"}}
        self.documents[key] = Held(version, body)
        was_there = held is not None and held.body is not None
        return {"status": (200 if was_there else 404) if body is None else 200 if was_there else 201}

    def _hits(self) -> dict[str, Any]:
        hits = [{"_id": key, "_version": version} for key, (version, _) in self.found.items()]
        return self._page(hits)

    def _page(self, hits: list[dict[str, Any]]) -> dict[str, Any]:
        shards = {"total": 2, "failed": self.failed_shards}
        return {"_scroll_id": "x", "timed_out": False, "_shards": shards, "hits": {"hits": hits}}


class Handler(QuietHandler):
    """One connection."""

    search: SearchServer
    protocol_version = "HTTP/1.1"

    def _serve(self) -> None:
        search = self.search
        body = self.content()
        search.requests.append((self.command, self.path))
        search.headers.append({name.lower(): value for name, value in self.headers.items()})
        answer = self._answer_of(search, body)
        if answer is None:
            self.close_connection = True
            return
        status, value = answer
        text = value if isinstance(value, bytes) else orjson.dumps(value)
        elastic = {"X_Elastic_Product": "Elasticsearch"} if search.product == "elasticsearch" else {}
        self.answer(status, text, Content_Type=self._content_type(value), **elastic)

    do_GET = do_POST = do_PUT = do_DELETE = _serve  # noqa: N815  http.server's names

    def _answer_of(self, search: SearchServer, body: bytes) -> Answer | None:
        if search.authorization not in {None, self.headers.get("Authorization")}:
            return error(401, "security_exception")
        if search.signed_for and not header_signature_is_right(
            self.command, self.path, search.headers[-1], body, search.signed_for
        ):
            return 403, {"message": "The request signature we calculated does not match"}
        if not re.match(r"/[^/]+/_bulk\b", self.path):
            return search.answer(self.command, self.path, body)
        search.sizes.append(len(body))
        if search.behaviours:
            return search.behaviours.popleft()(self, body)
        if len(body) > search.max_bytes:
            return 413, b""
        return search.bulk(body)

    def _content_type(self, value: object) -> str:
        if isinstance(value, bytes):
            return "text/html"
        asked = self.headers.get("Accept", "")
        return asked if "compatible-with" in asked else "application/json"


@contextmanager
def serving(
    search: SearchServer | None = None, *, port: int = 0, tls: ssl.SSLContext | None = None
) -> Iterator[SearchServer]:
    """Serve an index while the body runs."""
    search = search or SearchServer()
    search.closing.clear()
    with http_server(type("Bound", (Handler,), {"search": search}), port=port, tls=tls) as search.url:
        try:
            yield search
        finally:
            search.closing.set()
