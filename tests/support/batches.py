"""Record batches written byte by byte, with contents that a broker accepts and librdkafka cannot decompress."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Sequence

SNAPPY = 2
_NO_PRODUCER = struct.pack(">qhi", -1, -1, -1)
_SNAPPY_JAVA = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
_PRODUCE, _VERSION = 0, 3
_POLYNOMIAL = 0x82F63B78


def broken_snappy(values: Sequence[bytes]) -> bytes:
    """A batch in two concatenated snappy-java streams: brokers read on behind the second header, librdkafka does not."""
    records = b"".join(_record(delta, value) for delta, value in enumerate(values))
    half = len(records) // 2
    return batch(b"".join(map(_stream, (records[:half], records[half:]))), len(values), SNAPPY)


def batch(compressed: bytes, count: int, codec: int) -> bytes:
    """A batch of record format 2 around these bytes."""
    now_ms = int(time.time() * 1000)
    tail = struct.pack(">hiqq", codec, count - 1, now_ms, now_ms) + _NO_PRODUCER + struct.pack(">i", count) + compressed
    body = struct.pack(">ibI", -1, 2, _crc32c(tail)) + tail
    return struct.pack(">qi", 0, len(body)) + body


def produce(address: str, topic: str, partition: int, records: bytes) -> int:
    """Send the batch to its leader in a Produce request; returns the offset at which it begins."""
    name = topic.encode()
    body = struct.pack(">hhi", -1, -1, 10_000) + struct.pack(">ih", 1, len(name)) + name
    body += struct.pack(">iii", 1, partition, len(records)) + records
    request = struct.pack(">hhih", _PRODUCE, _VERSION, 1, -1) + body
    host, port = address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), 20) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        reply = connection.makefile("rb")
        answer = reply.read(struct.unpack(">i", reply.read(4))[0])
    at = 4 + 4 + 2 + len(name) + 4 + 4
    error, offset = struct.unpack_from(">hq", answer, at)
    assert error == 0, f"the broker refuses the batch: error {error}"
    return int(offset)


def _record(delta: int, value: bytes) -> bytes:
    body = b"\x00\x00" + _varint(delta) + _varint(1) + b"k" + _varint(len(value)) + value + _varint(0)
    return _varint(len(body)) + body


def _stream(data: bytes) -> bytes:
    """One snappy-java stream of one chunk, which is one literal of less than 61 bytes."""
    assert 0 < len(data) <= 60
    chunk = bytes([len(data), (len(data) - 1) << 2]) + data
    return _SNAPPY_JAVA + struct.pack(">i", len(chunk)) + chunk


def _varint(number: int) -> bytes:
    """Zigzag, for numbers that are not negative."""
    number, out = number << 1, bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def _crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (_POLYNOMIAL if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF
