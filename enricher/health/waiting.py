"""Connections whose request has not come yet: kept without a thread, for a short time, and few of each peer.

A probe sends its request at once. Whoever sends slowly, or nothing, takes no thread from it, and makes room for newer
connections where there are too many. Knows sockets and bytes; what a request means is server.py's.
"""

from __future__ import annotations

import contextlib
import re
import selectors
import socket
from collections import Counter
from dataclasses import dataclass, field

MAX_WAITING = 256
"""In all. Each costs a descriptor and at most `MAX_HEAD_BYTES`; Windows can watch 512 sockets."""
MAX_WAITING_OF_PEER = 128
HEAD_S = 5.0
"""From the connection to the end of the request's headers, however they trickle in."""
MAX_HEAD_BYTES = 16_384
"""The request line and all headers; a browser with many cookies sends half as much."""
_END_OF_HEAD = re.compile(rb"\r?\n\r?\n")
_AT_ONCE_BYTES = 4_096


@dataclass(slots=True, eq=False)
class Connection:
    """An accepted connection, and what came through it so far."""

    socket: socket.socket
    peer: str
    """Its address, without the port."""
    since_s: float
    head: bytearray = field(default_factory=bytearray)


class Waiting:
    """All of them. The selector gets each as the data of its key. Not safe for several threads."""

    def __init__(self, selector: selectors.BaseSelector) -> None:
        self._selector = selector
        self._connections: dict[Connection, None] = {}  # the oldest first
        self._of_peer: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._connections)

    def add(self, connection: Connection) -> None:
        """Wait for its request. Where there are too many, the oldest of the peer that has most is closed for it."""
        if self._of_peer[connection.peer] >= MAX_WAITING_OF_PEER:
            self._close_oldest(connection.peer)
        elif len(self._connections) >= MAX_WAITING:
            self._close_oldest(self._of_peer.most_common(1)[0][0])
        self._connections[connection] = None
        self._of_peer[connection.peer] += 1
        self._selector.register(connection.socket, selectors.EVENT_READ, connection)

    def read(self, connection: Connection) -> bool:
        """Take what has come; True once the whole head is there, and the connection is the caller's then.

        One that has ended, or sends too much, is closed.
        """
        if connection not in self._connections:
            return False  # closed for a newer one since the selector spoke of it
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
        """Close those that have taken longer than `HEAD_S`."""
        for connection in list(self._connections):
            if now_s - connection.since_s < HEAD_S:
                return
            self._close(connection)

    def close(self) -> None:
        """Close all."""
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
    """Send what is still to be sent, and close."""
    with contextlib.suppress(OSError):  # the other side may have done so before
        connection.shutdown(socket.SHUT_WR)
    connection.close()
