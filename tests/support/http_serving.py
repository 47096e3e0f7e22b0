"""Serves HTTP on a port of this machine while a test runs."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class _Server(ThreadingHTTPServer):
    request_queue_size = 128  # with the default of 5, some of eight connections at once are made a second later
    daemon_threads = True


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
