"""Serves HTTP on a port of this machine while a test runs."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class _Server(ThreadingHTTPServer):
    request_queue_size = 128  # with the default of 5, some of eight connections at once are made a second later
    daemon_threads = True


class QuietHandler(BaseHTTPRequestHandler):
    """One connection, of which nothing is logged."""

    def content(self) -> bytes:
        """The body of the request."""
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def answer(self, status: int, content: bytes = b"", **headers: str) -> None:
        """Answer in one piece. `headers`: `_` for `-`. A client that has gone is none of our business."""
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        with suppress(OSError):
            self.wfile.write(content)

    def log_message(self, *_arguments: object) -> None:
        """Say nothing."""


@contextmanager
def http_server(
    handler: type[BaseHTTPRequestHandler], *, port: int = 0, tls: ssl.SSLContext | None = None
) -> Iterator[str]:
    """Serve on loopback; yields the URL, without a slash at the end."""
    server = _Server(("127.0.0.1", port), handler)
    if tls:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"{'https' if tls else 'http'}://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
