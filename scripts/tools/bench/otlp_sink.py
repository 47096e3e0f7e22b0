"""An OTLP receiver that discards everything, in a process of its own (see `Child`), which tells its port."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tools.bench.child import Child, tell


class _Sink(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_arguments: object) -> None:
        """Log nothing."""


@contextmanager
def otlp_sink() -> Iterator[str]:
    """Run the receiver; yields its address."""
    with Child("tools.bench.otlp_sink") as sink:
        yield f"http://127.0.0.1:{sink.hear()['port']}"


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Sink)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    tell({"port": server.server_port})
    sys.stdin.buffer.read()
