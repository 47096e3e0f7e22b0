"""Framing of Kafka requests and replies, as far as a proxy needs it: sizes and headers, not bodies.

Source: the protocol guide (kafka.apache.org/protocol), request header versions 1 and 2, which begin alike.
"""

from __future__ import annotations

import struct
from asyncio import StreamReader
from dataclasses import dataclass
from enum import IntEnum

_SIZE = struct.Struct(">i")
_HEADER = struct.Struct(">hhih")  # api, version, correlation id, length of the client's id


class Api(IntEnum):
    """The API keys that the fault matrix uses."""

    PRODUCE = 0
    FETCH = 1
    METADATA = 3
    FIND_COORDINATOR = 10
    HEARTBEAT = 12
    API_VERSIONS = 18
    INIT_PRODUCER_ID = 22
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    TXN_OFFSET_COMMIT = 28


@dataclass(frozen=True, slots=True)
class Request:
    """The header of one request. `node`: index of the node it is sent to."""

    api: int
    version: int
    correlation_id: int
    client: str
    node: int


async def read_frame(reader: StreamReader) -> bytes:
    """Read one frame, size included. Raises IncompleteReadError or an OSError when the connection ends."""
    size = await reader.readexactly(_SIZE.size)
    return size + await reader.readexactly(_SIZE.unpack(size)[0])


def request_of(frame: bytes, node: int) -> Request:
    """Parse the header of a request frame."""
    api, version, correlation_id, length = _HEADER.unpack_from(frame, _SIZE.size)
    start = _SIZE.size + _HEADER.size
    return Request(api, version, correlation_id, frame[start : start + max(0, length)].decode(), node)


def correlation_id_of(frame: bytes) -> int:
    """The correlation id of a reply frame."""
    number: int = _SIZE.unpack_from(frame, _SIZE.size)[0]
    return number
