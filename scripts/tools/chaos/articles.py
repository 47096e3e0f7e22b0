"""The published inputs: short articles with unique ids, and among them every special case.

The kind of the n-th input depends on n alone, so a run can be repeated.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

import orjson

from tools import ARTICLES
from tools.chaos.schemas import UNKNOWN_IDS, frame

if TYPE_CHECKING:
    from tools.chaos.schemas import Schemas

_BAD_VALUES = (b"{", b"[]", b'{"id": 7, "body": "x"}', b"\xff\xfe", b'{"id": "no-body"}')
_EVERY_TOMBSTONE, _EVERY_BAD, _EVERY_UNBEARABLE = 101, 53, 97
_EVERY_AVRO, _EVERY_UNKNOWN = 3, 211


@dataclass(frozen=True, slots=True)
class Input:
    """Key and value of an input; the value is None for a tombstone."""

    key: bytes
    value: bytes | None


class Articles:
    """Inputs by number; every id and key starts with `prefix`. With `schemas`, every third article is in Avro."""

    def __init__(self, prefix: str, schemas: Schemas | None = None) -> None:
        self._prefix = prefix
        self._schemas = schemas
        texts = [orjson.loads(line)["body"].split() for line in ARTICLES.read_bytes().splitlines()]
        # Of plain letters, which are whole words by every rule: reference.py need not know that of the worker.
        self._words = [word for text in texts for word in text if word.isascii() and word.isalpha()]

    def input(self, number: int) -> Input:
        """The usual mix: 1 % tombstones, 3 % dead letters."""
        if number % _EVERY_TOMBSTONE == 5:
            return Input(self._key(number), None)
        if number % _EVERY_BAD == 7:
            return self.poison(number)
        if self._schemas and number % _EVERY_UNKNOWN == 13:
            return Input(self._key(number), frame(UNKNOWN_IDS[-1], "no", "such", "schema"))
        return self._article(number, " unbearable" if number % _EVERY_UNBEARABLE == 11 else "")

    def unknown(self, number: int) -> Input:
        """Six bytes that name a schema of which no other input and no registry has heard."""
        return Input(self._key(number), frame(UNKNOWN_IDS[number]) + b"x")

    def poison(self, number: int) -> Input:
        """An input that is no valid article."""
        return Input(self._key(number), _BAD_VALUES[number % len(_BAD_VALUES)])

    def large_poison(self, number: int, size_bytes: int) -> Input:
        """An input of exactly this size that is no valid article and cannot be compressed."""
        return Input(self._key(number), b"\xff" + Random(number).randbytes(size_bytes - 1))  # noqa: S311  as below

    def _key(self, number: int) -> bytes:
        return f"{self._prefix}-{number}".encode()

    def _article(self, number: int, ending: str) -> Input:
        chosen = Random(number)  # noqa: S311  to be repeatable, not to be secret
        start, length = chosen.randrange(len(self._words) - 100), chosen.randrange(5, 60)
        title, body = self._words[start : start + 5], self._words[start + 5 : start + 5 + length]
        key = self._key(number)
        article = {"id": key.decode(), "title": " ".join(title), "body": " ".join(body) + ending}
        if self._schemas and number % _EVERY_AVRO == 0:
            return Input(key, self._schemas.framed(*article.values()))
        return Input(key, orjson.dumps(article))
