"""Free ports on loopback, for servers that cannot be told to take any.

No two processes that ask here get the same port: between the choice and the server's start, nobody listens on it yet.
"""

from __future__ import annotations

import os
import random
import socket

_HOST = "127.0.0.1"
# Below the ephemeral ports of Linux (from 32768), macOS and Windows (from 49152), which outgoing connections use.
_PORTS = range(20000, 32000)
_claims: list[socket.socket] = []
"""A UDP socket on each port that was chosen. Kafka needs none, and the operating system closes it with the process."""


def free_ports(count: int) -> list[int]:
    """Distinct ports that are free now, and that no other process chooses while this one lives."""
    found: list[int] = []
    for port in random.sample(_PORTS, len(_PORTS)):
        if len(found) == count:
            break
        if _claim(port):
            found.append(port)
    return found


def free_row(count: int) -> int:
    """The first of so many consecutive ports, under the same conditions."""
    while True:
        (first,) = free_ports(1)
        if all(_claim(first + offset) for offset in range(1, count)):
            return first


def is_free(port: int) -> bool:
    """Whether a server could listen on this port."""
    with socket.socket() as probe:
        if os.name == "posix":
            # As Java does: closed connections of a broker that just stopped do not hold the port. (On Windows the option
            # would take a port away from its owner.)
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        return _binds(probe, port)


def _claim(port: int) -> bool:
    claim = socket.socket(type=socket.SOCK_DGRAM)
    if _binds(claim, port) and is_free(port):
        _claims.append(claim)
        return True
    claim.close()
    return False


def _binds(probe: socket.socket, port: int) -> bool:
    try:
        probe.bind((_HOST, port))
    except OSError:
        return False
    return True
