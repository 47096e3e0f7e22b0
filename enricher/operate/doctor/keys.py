"""Whether the records of each key are in one partition, as their order, their versions and their deletion need.

They are not if publishers choose partitions by different rules. Java's clients and `enricher publish` take murmur2 of the
key, librdkafka's clients CRC32 unless they are told otherwise. No I/O.
"""

from __future__ import annotations

from collections.abc import Collection
from hashlib import blake2b
from zlib import crc32

ADVICE = (
    "Give every producer of librdkafka (confluent-kafka) the property partitioner=murmur2_random; if the topic got more "
    "partitions, raise kafka.epoch (deploy/index-consumers.md)."
)
ONE_TOPIC = (
    "Between topics no order is kept, nor by versions: an old article or tombstone may come last. Publish all records of a "
    "key to one of them (deploy/running.md)."
)

_32_BITS = 0xFFFF_FFFF


class KeyPartitions:
    """Counts keys by where their records are. `partitions`: how many the topic has."""

    def __init__(self, partitions: int) -> None:
        self._partitions = partitions
        self._place: dict[int, int] = {}
        """The partition of the first record of each key, by the key's digest."""
        self._several: set[int] = set()
        self._by_crc32: set[int] = set()
        self._otherwise: set[int] = set()

    def note(self, key: bytes | None, partition: int) -> None:
        """Take the next record; one without a key has no place to be in."""
        if key is None:
            return
        digest = int.from_bytes(blake2b(key, digest_size=8).digest(), "little")
        if self._place.get(digest) == partition:
            return
        if self._place.setdefault(digest, partition) != partition:
            self._several.add(digest)
        if partition != murmur2(key) % self._partitions:
            found = self._by_crc32 if partition == crc32(key) % self._partitions else self._otherwise
            found.add(digest)

    @property
    def keys(self) -> int:
        """How many keys were looked at."""
        return len(self._place)

    @property
    def digests(self) -> Collection[int]:
        """These keys, as digests that are the same in other topics."""
        return self._place.keys()

    @property
    def in_several(self) -> int:
        """How many of them have records in several partitions."""
        return len(self._several)

    @property
    def from_crc32(self) -> int:
        """How many of them have a record where only CRC32 puts it; 0 if more follow neither rule, which then is a chance."""
        return len(self._by_crc32) if len(self._by_crc32) > len(self._otherwise) else 0

    def __str__(self) -> str:
        several = f"{self.in_several:,} of {self.keys:,} keys have records in several partitions"
        chosen = f"{self.from_crc32:,} have one where CRC32 puts it, the default of librdkafka, and not murmur2"
        return f"{several}; {chosen}" if self.from_crc32 else several


def murmur2(key: bytes) -> int:
    """The hash by which Java's clients choose a partition: 31 bits, to be taken modulo the number of partitions."""
    factor, whole = 0x5BD1_E995, len(key) & ~3
    found = 0x9747_B28C ^ len(key)
    for start in range(0, whole, 4):
        word = int.from_bytes(key[start : start + 4], "little") * factor & _32_BITS
        found = found * factor & _32_BITS ^ (word ^ word >> 24) * factor & _32_BITS
    if rest := key[whole:]:
        found = (found ^ int.from_bytes(rest, "little")) * factor & _32_BITS
    found = (found ^ found >> 13) * factor & _32_BITS
    return (found ^ found >> 15) & 0x7FFF_FFFF
