"""Keys in several partitions: which are noticed, and what they say about their publishers."""

from __future__ import annotations

from zlib import crc32

import pytest

from enricher.operate.doctor.articles import KeyPartitions, murmur2

PARTITIONS = 8


def noted(places: list[tuple[bytes, int]]) -> KeyPartitions:
    """What is counted after these records."""
    keys = KeyPartitions(PARTITIONS)
    for key, partition in places:
        keys.note(key, partition)
    return keys


def by_java(number: int) -> tuple[bytes, int]:
    """The key of this number where Java's clients put it."""
    key = b"k%d" % number
    return key, murmur2(key) % PARTITIONS


def by_librdkafka(number: int) -> tuple[bytes, int]:
    """The key of this number where librdkafka's clients put it by default."""
    key = b"k%d" % number
    return key, crc32(key) % PARTITIONS


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
    ],
)
def test_murmur2_is_that_of_kafka(key: bytes, expected: int) -> None:
    """The answers are those of Kafka's own test, `UtilsTest.testMurmur2`; partitions use 31 bits of them."""
    assert expected & 0x7FFF_FFFF == murmur2(key)


def test_one_partitioner_for_all_is_nothing_to_warn_about() -> None:
    """Each key is in one partition, however often it comes; what has no key cannot be in the wrong place."""
    keys = noted([by_java(number % 100) for number in range(500)])
    keys.note(None, 3)
    assert (100, 0, 0) == (keys.keys, keys.in_several, keys.from_crc32)


def test_keys_of_two_partitioners_are_counted_once_each() -> None:
    """In whichever order they come; a key that both put into the same partition is no harm."""
    places = [by_java(number) for number in range(200)] + [by_librdkafka(number) for number in range(50)] * 3
    apart = sum(by_java(number) != by_librdkafka(number) for number in range(50))
    for order in (places, places[::-1]):
        keys = noted(order)
        assert (200, apart, apart) == (keys.keys, keys.in_several, keys.from_crc32)
    assert f"{apart} of 200 keys have records in several partitions; {apart} have one where CRC32" in str(keys)


def test_a_partitioner_that_nobody_knows_is_not_taken_for_librdkafkas() -> None:
    """One of eight keys lies where CRC32 puts it by chance."""
    keys = noted([(b"k%d" % number, number % PARTITIONS) for number in range(400)])
    assert (400, 0, 0) == (keys.keys, keys.in_several, keys.from_crc32)
    assert "CRC32" not in str(keys)
