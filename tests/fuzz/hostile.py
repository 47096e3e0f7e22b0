"""Records that nobody would publish on purpose: broken, nested, laden with headers, dense, timeless, packed in every way."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import orjson
from confluent_kafka import Message, Producer
from fuzz.test_fuzz_codec import KINDS as BROKEN
from support.patience import PATIENCE_S

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TIMESTAMPS_MS = (0, 0, 0, 1, 1_790_000_000)
"""0 is now to the client. Brokers since 3.6 refuse what is more than an hour ahead."""
MANY_HEADERS = 300
"""More than these are refused by default; beyond 100,000 the client gives none and says nothing."""
_SENTENCE = "Angela Merkel met Emmanuel Macron in São Paulo. "
_DENSE = ("!", "中", "a", "\U0001f680", "e\u0301", "\ufdfa", "[SEP]", "a b ")
_SOON = 200
"""One record in so many is large."""
_WITH_ONE_CODEC = 40


@dataclass(frozen=True, slots=True)
class Hostile:
    """One input, and what has to become of it: `record`, `dead letter`, `tombstone`, or `any` of the first two."""

    kind: str
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, str | bytes | None]]
    timestamp_ms: int
    expected: str


def article(body: str) -> bytes:
    """A valid one."""
    return orjson.dumps({"id": "fuzz", "body": body})


def plain(dice: random.Random) -> tuple[bytes | None, str]:
    """What everybody publishes."""
    return article(_SENTENCE * dice.randint(1, 3)), "record"


def tombstone(_dice: random.Random) -> tuple[bytes | None, str]:
    """No value at all."""
    return None, "tombstone"


def nested(dice: random.Random) -> tuple[bytes | None, str]:
    """Brackets to the depth that a parser takes, or beyond it, in a field that nobody reads."""
    depth = dice.choice([10, 1_000, 1_022, 1_030])
    times = dice.randint(1, 500) if dice.randrange(_SOON) == 0 else 1
    kind = dice.choice([(b"[", b"]"), (b'{"a":', b"}")])
    deep = b",".join([kind[0] * depth + b"1" + kind[1] * depth] * times)
    return b'{"id":"fuzz","body":"Oslo","more":[' + deep + b"]}", "dead letter" if depth > 1_022 else "record"


def large(dice: random.Random) -> tuple[bytes | None, str]:
    """Above the limit of a value, packed well or not at all; now and then."""
    if dice.randrange(_SOON):
        return plain(dice)
    size = dice.choice([4_194_305, 6_000_000])
    return dice.choice([b"[" * size, b" " * size, dice.randbytes(1_000_000) * 5]), "dead letter"


def dense(dice: random.Random) -> tuple[bytes | None, str]:
    """A token for each character, or a word without an end."""
    chars = 30_000 if dice.randrange(_SOON) == 0 else 300
    return article(dice.choice(_DENSE) * dice.randint(1, chars)), "any"


def broken(dice: random.Random) -> tuple[bytes | None, str]:
    """As the codec's own fuzz: any bytes, and articles with something amiss."""
    return dice.choice(list(BROKEN))(dice), "any"


VALUES: tuple[Callable[[random.Random], tuple[bytes | None, str]], ...] = (
    plain, tombstone, nested, large, dense, broken, broken, broken,
)  # fmt: skip


def headers(dice: random.Random) -> list[tuple[str, str | bytes | None]]:
    """Mostly some, often too many, now and then as many as a message holds."""
    few: list[tuple[str, str | bytes | None]] = [
        ("traceparent", dice.randbytes(5)),
        ("x", None),
        ("ü" * 9, b"\xff"),
        ("", b""),
    ]
    kind = dice.randrange(4 * _SOON)
    if kind == 0:
        return [("a", b"")] * dice.choice([95_000, 100_000, 100_001, 190_000])
    return few[: dice.randint(0, 4)] if kind % 20 else [("a", b"")] * dice.randint(0, 1_000)


def hostile(dice: random.Random) -> Hostile:
    """Any of them."""
    make = dice.choice(VALUES)
    value, expected = make(dice)
    said = headers(dice)
    if MANY_HEADERS < len(said) <= 100_000 and value is not None:
        expected = "dead letter"
    key = dice.choice([None, b"", b"k", dice.randbytes(9)])
    return Hostile(make.__name__, key, value, said, dice.choice(TIMESTAMPS_MS), expected)


def publish(bootstrap_servers: str, topic: str, count: int, seed: int) -> dict[tuple[int, int], Hostile]:
    """Write `count` of them, forty with each codec in turn; returns them by their place, without what is large."""
    dice, places = random.Random(seed), dict[tuple[int, int], Hostile]()
    for codec, size in _rounds(count):
        producer = Producer({
            "bootstrap.servers": bootstrap_servers, "compression.type": codec, "message.max.bytes": 16_000_000,
            "linger.ms": 20, "log_level": 0,
        })  # fmt: skip
        for _ in range(size):
            each = hostile(dice)
            kept = replace(each, value=None, headers=[])

            def delivered(error: object, message: Message, kept: Hostile = kept) -> None:
                assert error is None, error
                places[message.partition() or 0, message.offset() or 0] = kept

            producer.produce(
                topic, each.value, each.key, headers=each.headers, timestamp=each.timestamp_ms, on_delivery=delivered
            )
            producer.poll(0)
        assert producer.flush(PATIENCE_S) == 0
    return places


def _rounds(count: int) -> Iterator[tuple[str, int]]:
    for number, start in enumerate(range(0, count, _WITH_ONE_CODEC)):
        yield CODECS[number % len(CODECS)], min(_WITH_ONE_CODEC, count - start)
