"""Bytes that nobody would write on purpose, 120,000 of them: an article or `InvalidArticle` comes out, nothing else."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import orjson
import pytest
from support.properties import examples

from enricher.errors import InvalidArticle
from enricher.worker.records import Article
from tools.worker_parts import decode_article

LIMIT_CHARS = 100_000
CANARY = "xylophonist"
ARTICLE = {
    "id": "a-1",
    "title": f"Zoë Brück, the {CANARY} \U0001f68b",
    "body": f"Angela Merkel met a {CANARY} in São Paulo — 中文 \u0301 \u200b.",
    "language": "en",
    "published_at": "2024-01-01T00:00:00Z",
    "other": {"list": [1, 2.5, None, True, {"deep": "er"}]},
}
VALID = orjson.dumps(ARTICLE)
REGISTRY_PREFIX = b"\x00\x00\x00\x00\x07"
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
PIECES = [
    b'{"id": "', b'"', b"\\", b"\\u", b"\\ud83d", b"\\udc00", b"\\u0000", b"{", b"}", b"[", b"]", b",", b":", b"NaN",
    b"-Infinity", b"1e999", b"-0", b"9" * 400, b"null", b"true", b"\x00", b"\xff", b"\xed\xa0\xbd", b"\xf4\x90\x80\x80",
    b"\xc0\x80", BYTE_ORDER_MARK, REGISTRY_PREFIX, b"\xe2\x80\xa8", b'"body": ', b'"title": ', b'"id": ', b'"__proto__": ',
    b"[" * 1100, b'{"a":' * 1100, b"\n" * 9,
]  # fmt: skip

Mutation = Callable[[random.Random], bytes]


def random_bytes(dice: random.Random) -> bytes:
    """Any bytes at all."""
    return dice.randbytes(dice.randrange(200))


def flipped(dice: random.Random) -> bytes:
    """An article with some bits turned over."""
    value = bytearray(VALID)
    for _ in range(dice.randint(1, 8)):
        value[dice.randrange(len(value))] ^= 1 << dice.randrange(8)
    return bytes(value)


def cut(dice: random.Random) -> bytes:
    """An article without its end, its beginning, or something between."""
    start, stop = sorted(dice.choices(range(len(VALID) + 1), k=2))
    return dice.choice([VALID[:start], VALID[stop:], VALID[:start] + VALID[stop:]])


def spliced(dice: random.Random) -> bytes:
    """An article with what parsers stumble over in the middle."""
    value = VALID
    for _ in range(dice.randint(1, 4)):
        place = dice.randrange(len(value) + 1)
        value = value[:place] + dice.choice(PIECES) + value[place:]
    return value


def assembled(dice: random.Random) -> bytes:
    """Such pieces alone."""
    return b"".join(dice.choices(PIECES, k=dice.randint(1, 12)))


def renamed(dice: random.Random) -> bytes:
    """An article whose fields trade names and types, some of them twice."""
    names = [*ARTICLE, "id", "body", ""]
    values = [
        *map(orjson.dumps, ARTICLE.values()),
        b"null",
        b"7",
        b"1e308",
        b"[]",
        b'""',
        b'" \\u200b"',
        b'"\\ud83d\\ude8b"',
    ]
    fields = [b'"%b": %b' % (dice.choice(names).encode(), dice.choice(values)) for _ in range(dice.randint(2, 8))]
    return b"{" + b", ".join(fields) + b"}"


def prefixed(dice: random.Random) -> bytes:
    """What may stand before an article, once or several times, whole or not."""
    before = b"".join(dice.choices([REGISTRY_PREFIX, BYTE_ORDER_MARK, b" \n", b"\x00", b"\x01" + bytes(16)], k=3))
    return before[: dice.randrange(len(before) + 1)] + dice.choice([VALID, flipped(dice)])


KINDS: dict[Mutation, int] = {
    random_bytes: 20_000,
    flipped: 20_000,
    cut: 10_000,
    spliced: 20_000,
    assembled: 20_000,
    renamed: 20_000,
    prefixed: 10_000,
}


def verdict(value: bytes) -> str:
    """`article` or `refused`; anything else is the failure that is looked for."""
    try:
        found = decode_article(value, max_article_chars=LIMIT_CHARS)
    except InvalidArticle as error:
        reason = str(error)
        assert reason.isascii() and CANARY not in reason, "reasons reach logs"  # noqa: PT018  one claim
        return "refused"
    assert type(found) is Article
    for text in (found.id, found.title, found.body, *found.metadata.values()):
        text.encode()  # no lone surrogate: it could be written nowhere
    return "article"


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: str(kind.__name__))
def test_any_bytes_are_an_article_or_an_invalid_one(kind: Mutation) -> None:
    """The same bytes in every run, so that a failure can be found again; in `--quick` the first fifth of them."""
    dice, count = random.Random(f"enricher {kind.__name__}"), examples(KINDS[kind]).max_examples
    seen = Counter(verdict(kind(dice)) for _ in range(count))
    assert seen.total() == count
    assert seen["refused"] > 0
    if kind in {flipped, spliced, renamed, prefixed}:
        assert seen["article"] > 0, "the mutations are not so harsh that nothing gets past the parser"
