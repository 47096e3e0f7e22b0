"""An HTTP proxy in front of a registry that can be told to go wrong, in the ways that registries and their proxies do.

    with Registry() as registry, FaultProxy(registry.url) as proxy:
        with proxy.fault(Fault.DOWN):
            ...

Its threads end with it; its methods may be called from any thread.
"""

from __future__ import annotations

import socket
import threading
from collections import Counter
from contextlib import contextmanager, suppress
from http.server import ThreadingHTTPServer
from typing import TYPE_CHECKING, ClassVar
from urllib.parse import urlsplit

from tools.closing import Closing
from tools.ports import free_ports
from tools.registry.faults import Fault
from tools.registry.handler import Handler

if TYPE_CHECKING:
    from collections.abc import Iterator

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
        self.current = None
        self.changed.set()
        self._close()

    def opened(self, connection: socket.socket) -> None:
        with self._lock:
            self._sockets.add(connection)

    def closed(self, connection: socket.socket) -> None:
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
