"""Serves the search page on loopback."""

from __future__ import annotations

import http.client
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

import orjson

from tools.demo.search.page import POLICY, Found, Search, failure, page
from tools.waiting import Closing

_HOST = "127.0.0.1"
_TIMEOUT_S = 30.0
_SEARCHES = 8
"""At once; more wait, so that a page that is loaded very often does not start a thread of the index for each."""


class NoAnswer(Exception):
    """The index does not answer, or not with hits."""


class SearchPage(Closing):
    """The page for an index, at `url`, until it is closed. `port`: 0 is a free one."""

    def __init__(self, index_url: str, name: str, *, port: int = 0) -> None:
        handler = type("Bound", (_Handler,), {"index": (index_url, name), "places": threading.Semaphore(_SEARCHES)})
        self._server = ThreadingHTTPServer((_HOST, port), handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, name="search-page", daemon=True)
        self._thread.start()
        self.url = f"http://{_HOST}:{self._server.server_port}/"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    index: tuple[str, str]
    places: threading.Semaphore
    timeout = _TIMEOUT_S

    def do_GET(self) -> None:
        """Answer with the page. A name of another host may be a site that leads its visitors' browsers here."""
        parts = urlsplit(self.path)
        if urlsplit(f"//{self.headers.get('Host', '')}").hostname not in {_HOST, "localhost"}:
            self._reply(403, failure("This page is for 127.0.0.1 only."))
        elif parts.path != "/":
            self._reply(404, failure("There is only one page here: /"))
        else:
            try:
                search = Search.read(parts.query)
                with self.places:
                    found = ask(*self.index, search)
                self._reply(200, page(search, found))
            except (NoAnswer, ValueError) as error:
                self._reply(502, failure(f"The search index gave no answer: {error}"))

    def log_message(self, *_arguments: object) -> None:
        """Say nothing."""

    def _reply(self, status: int, text: str) -> None:
        content = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Security-Policy", POLICY)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("Cache-Control", "no-store")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def ask(index_url: str, name: str, search: Search) -> Found:
    """Ask the index. Raises NoAnswer."""
    address = urlsplit(index_url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=_TIMEOUT_S)
    try:
        connection.request(
            "POST", f"/{name}/_search", orjson.dumps(search.body()), {"Content-Type": "application/json"}
        )
        answer = connection.getresponse()
        body: Any = orjson.loads(answer.read())
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise NoAnswer(type(error).__name__) from error
    finally:
        connection.close()
    if answer.status != 200:
        raise NoAnswer(f"HTTP {answer.status}")
    try:
        return Found.read(body)
    except (KeyError, TypeError) as error:
        raise NoAnswer("it is not that of a search") from error
