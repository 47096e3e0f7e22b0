"""Connections whose request has not arrived yet: kept without a thread, for a short time, a bounded number per peer.

A probe sends its request at once. Clients that send slowly, or nothing, occupy no thread, and the oldest of them are closed
when there are too many. This module handles sockets and bytes; requests are interpreted elsewhere.
"""

from __future__ import annotations

import contextlib
import re
import selectors
import socket
from collections import Counter
from dataclasses import dataclass, field

MAX_WAITING = 256
"""In all. Each takes a file descriptor and at most `MAX_HEAD_BYTES`; `select` on Windows handles 512 sockets."""
MAX_WAITING_OF_PEER = 128
HEAD_S = 5.0
"""From accepting the connection to the end of the request's headers."""
MAX_HEAD_BYTES = 16_384
"""The request line and all headers; a browser with many cookies sends half as much."""
_END_OF_HEAD = re.compile(rb"\r?\n\r?\n")
_AT_ONCE_BYTES = 4_096


@dataclass(slots=True, eq=False)
class Connection:
    """An accepted connection, and the bytes received so far."""

    socket: socket.socket
    peer: str
    """Its address, without the port."""
    since_s: float
    head: bytearray = field(default_factory=bytearray)


class Waiting:
    """The waiting connections. Each is registered with the selector as the data of its key. Not thread-safe."""

    def __init__(self, selector: selectors.BaseSelector) -> None:
        self._selector = selector
        self._connections: dict[Connection, None] = {}  # the oldest first
        self._of_peer: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._connections)

    def add(self, connection: Connection) -> None:
        """Wait for its request. If there are too many, close the oldest connection of the peer that has most."""
        if self._of_peer[connection.peer] >= MAX_WAITING_OF_PEER:
            self._close_oldest(connection.peer)
        elif len(self._connections) >= MAX_WAITING:
            self._close_oldest(self._of_peer.most_common(1)[0][0])
        self._connections[connection] = None
        self._of_peer[connection.peer] += 1
        self._selector.register(connection.socket, selectors.EVENT_READ, connection)

    def read(self, connection: Connection) -> bool:
        """Read what has arrived; True once the head is complete, and then the caller owns the connection.

        A connection that has ended or sends too much is closed.
        """
        if connection not in self._connections:
            return False  # closed in favour of a newer one since the selector returned
        try:
            part = connection.socket.recv(_AT_ONCE_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            part = b""
        connection.head += part
        if not part or len(connection.head) > MAX_HEAD_BYTES:
            self._close(connection)
            return False
        if not _END_OF_HEAD.search(connection.head):
            return False
        self._forget(connection)
        return True

    def close_late(self, now_s: float) -> None:
        """Close the connections that have waited longer than `HEAD_S`."""
        for connection in list(self._connections):
            if now_s - connection.since_s < HEAD_S:
                return
            self._close(connection)

    def close(self) -> None:
        """Close all connections."""
        for connection in list(self._connections):
            self._close(connection)

    def _close_oldest(self, peer: str) -> None:
        self._close(next(each for each in self._connections if each.peer == peer))

    def _close(self, connection: Connection) -> None:
        self._forget(connection)
        hang_up(connection.socket)

    def _forget(self, connection: Connection) -> None:
        self._selector.unregister(connection.socket)
        del self._connections[connection]
        self._of_peer[connection.peer] -= 1
        if not self._of_peer[connection.peer]:
            del self._of_peer[connection.peer]


def hang_up(connection: socket.socket) -> None:
    """Send what is buffered, and close."""
    with contextlib.suppress(OSError):  # the client may have closed it already
        connection.shutdown(socket.SHUT_WR)
    connection.close()
