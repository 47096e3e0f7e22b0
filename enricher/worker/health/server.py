"""The HTTP server: GET and HEAD of a fixed set of paths, everything bounded.

Each connection carries one request. The event loop of one thread waits for requests and sends answers; a daemon thread makes
each answer, because some block. Probes have their own slots (connection_limits.py), so that slow or idle clients, however
many, do not delay the kubelet. Connections beyond the limits are closed without an answer. TLS and authentication are left
to a NetworkPolicy or a proxy.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import re
import socket
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Self

from enricher.errors import SettingsError
from enricher.worker.health.connection_limits import Slots, Waiting
from enricher.worker.health.handler import Handler
from enricher.worker.health.routes import Route

log = logging.getLogger(__name__)

USUAL_PORT = 8080
HEAD_S = 5.0
"""The time from accepting the connection to the end of the request's headers."""
ANSWER_S = 10.0
"""The time to make and send the answer. The slowest, the metrics of many processes, takes far less."""
MAX_HEAD_BYTES = 16_384
"""The size of the request line and all headers; a browser with many cookies sends half as much."""
_END_OF_HEAD = re.compile(rb"\r?\n\r?\n")
_PROBE = re.compile(rb"\s*(?:GET|HEAD) /(?:livez|readyz|startupz)[ ?]")
_AT_ONCE_BYTES = 4_096
_TAKEN = {errno.EADDRINUSE, errno.EACCES}
"""EACCES: the port is reserved by Windows."""
_BACKLOG = 1024
"""Connections that the kernel keeps until they are accepted: a burst of others must not displace a probe."""
_NO_DESCRIPTOR_S = 0.1


class HealthServer:
    """Serves `routes` from `__enter__` to `close`. `port` None: 8080, or any free port if that is taken; 0: any free port.

    Raises SettingsError if it cannot listen on the address.
    """

    def __init__(self, routes: Mapping[str, Route], *, host: str, port: int | None) -> None:
        self._routes = routes
        self._listener = _listen(host, port)
        self._host, self.port = self._listener.getsockname()[:2]
        self._waiting, self._slots = Waiting(), Slots()
        self._closed: Future[None] = Future()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="health", daemon=True)

    @property
    def url(self) -> str:
        """The address as a URL, with `localhost` instead of a wildcard."""
        host = {"0.0.0.0": "localhost", "::": "localhost"}.get(self._host, self._host)  # noqa: S104  only compared
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}/"

    def close(self) -> None:
        """Stop answering. Requests that are being answered are not waited for."""
        self._closed.set_result(None)
        if self._thread.is_alive():
            self._thread.join()
        self._listener.close()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    async def _serve(self) -> None:
        accepting = asyncio.create_task(self._accept())
        await asyncio.wrap_future(self._closed)
        accepting.cancel()  # and with it every connection

    async def _accept(self) -> None:
        async with asyncio.TaskGroup() as connections:
            while True:
                try:
                    connection, address = await asyncio.get_running_loop().sock_accept(self._listener)
                except OSError as error:  # no descriptor is left, or the client is gone
                    log.debug("a connection for health was lost: %s", error.strerror)
                    # The connection is still pending, and the next try would fail too.
                    await asyncio.sleep(_NO_DESCRIPTOR_S)
                    continue
                connections.create_task(self._converse(connection, str(address[0])))
                await asyncio.sleep(0)  # requests first: accepting another connection may close a waiting one

    async def _converse(self, connection: socket.socket, peer: str) -> None:
        """Answer one request, and close the connection whatever happens."""
        try:
            with self._waiting.admit(peer):
                async with asyncio.timeout(HEAD_S):
                    head = await _read_head(connection)
            with self._slots.take(peer, probe=_PROBE.match(head) is not None) as free:
                if free and head:
                    await self._answer(connection, head, peer)
        except Exception:  # noqa: BLE001  usually a client that went away
            log.debug("a request for health ended early")
        finally:
            with contextlib.suppress(OSError):  # the client may have closed it already
                connection.shutdown(socket.SHUT_WR)
            connection.close()

    async def _answer(self, connection: socket.socket, head: bytes, peer: str) -> None:
        """Make and send the answer. Returns only when the thread ends, so that its slot is held until then."""
        answering = _run_in_thread(lambda: Handler(head, peer, self._routes).answer())
        try:
            async with asyncio.timeout(ANSWER_S):
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                for part in await asyncio.shield(answering):
                    await asyncio.get_running_loop().sock_sendall(connection, part)
        except TimeoutError:
            connection.close()
            await answering


async def _read_head(connection: socket.socket) -> bytes:
    """The received bytes once they contain an empty line; empty if the connection ends before, or they are too many."""
    head = b""
    while not _END_OF_HEAD.search(head):
        part = await asyncio.get_running_loop().sock_recv(connection, _AT_ONCE_BYTES)
        head += part
        if not part or len(head) > MAX_HEAD_BYTES:
            return b""
    return head


def _run_in_thread(call: Callable[[], tuple[bytes, bytes]]) -> asyncio.Future[tuple[bytes, bytes]]:
    """Like `asyncio.to_thread`, but in a daemon thread, for which the end of the process does not wait."""
    result: Future[tuple[bytes, bytes]] = Future()

    def run() -> None:
        try:
            result.set_result(call())
        except BaseException as error:  # noqa: BLE001  raised again where it is awaited
            result.set_exception(error)

    result.set_running_or_notify_cancel()
    threading.Thread(target=run, name="health-request", daemon=True).start()
    return asyncio.wrap_future(result)


def _listen(host: str, port: int | None) -> socket.socket:
    """A listening socket that does not block. `::` is every address, also without IPv6. Raises SettingsError."""
    if host == "::" and not socket.has_dualstack_ipv6():  # the kernel has no IPv6
        host = "0.0.0.0"  # noqa: S104  as the setting says
    wanted = USUAL_PORT if port is None else port
    try:
        # `create_server` does not reuse the address on Windows, where a second process could take over the port.
        family = socket.getaddrinfo(host, wanted, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        both = family is socket.AF_INET6 and socket.has_dualstack_ipv6()
        listener = socket.create_server((host, wanted), family=family, backlog=_BACKLOG, dualstack_ipv6=both)
    except (OSError, UnicodeError) as error:  # UnicodeError: the name cannot be a host name
        if port is not None or getattr(error, "errno", None) not in _TAKEN:
            # `create_server` adds the address to the text of the error.
            reason = os.strerror(number) if (number := getattr(error, "errno", None)) in _TAKEN else error
            message = f"health.host and health.port: cannot listen on {host}:{wanted}: {reason}"
            raise SettingsError(message) from error
        log.warning("port %d is taken; serving health on another port (health.port)", USUAL_PORT)
        return _listen(host, 0)
    listener.settimeout(0)
    return listener
