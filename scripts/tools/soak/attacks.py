"""Hostile inputs: small on the wire, or valid, but expensive to process."""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import orjson

Headers = Sequence[tuple[str, bytes]]
MB = 1_000_000


@dataclass(frozen=True, slots=True)
class Attack:
    """`count` records of one kind. `codec`: the publisher's compression; `topic`: changed settings of the input topic."""

    name: str
    what: str
    count: int
    value: bytes
    codec: str = "none"
    headers: Headers = ()
    topic: Mapping[str, str] = field(default_factory=dict)

    def values(self, share: float) -> Iterator[bytes]:
        """The values of this share of the records."""
        for _ in range(max(1, round(self.count * share))):
            yield self.value


@dataclass(frozen=True, slots=True)
class FileAttack:
    """A gzip file of `lines` equal lines, for `enricher enrich`."""

    name: str
    what: str
    lines: int
    line: bytes

    def write(self, folder: Path, share: float) -> tuple[Path, int]:
        """Write the file; returns it and its number of lines. The line is packed once: gzip files may be concatenated."""
        path, count = folder / f"{self.name}.jsonl.gz", max(1, round(self.lines * share))
        packed = gzip.compress(self.line + b"\n", 6)
        with path.open("wb") as file:
            for _ in range(count):
                file.write(packed)
        return path, count


_AS_USUAL = {"compression.type": "producer"}
"""Kafka's default: the topic keeps the publisher's compression."""


def article(body: str) -> bytes:
    """An article with this text."""
    return orjson.dumps({"id": "hostile", "body": body})


def attacks() -> list[Attack]:
    """Attacks through a topic, which `topics create` makes unless `topic` says otherwise."""
    letters, huge = article("a" * 45 * MB), article("a" * 400 * MB)
    nested = b'{"id":"nested","body":"b","more":[' + b"[]," * (5 * MB) + b"[]]}"
    short, few = article("Anna met Bob in Paris."), [("h", b"1")] * 95_000
    made = [
        Attack("none", "no attack: 100 short articles", 100, short),
        Attack("zstd", "200 articles of 45 MB of one letter, zstd", 200, letters, "zstd"),
        Attack("gzip", "4 articles of 400 MB, gzip", 4, huge, "gzip"),
        Attack("headers", "1,000 articles with 95,000 headers of two bytes", 1_000, short, "zstd", few),
        Attack("headers-190000", "10 articles with 190,000 headers", 10, short, "zstd", few * 2),
        Attack("nested", "30 values of 15 MB of nested arrays", 30, nested),
        Attack("marks", "100 articles of 1 MB of '!'", 100, article("!" * (MB - 100))),
        Attack("cjk", "100 articles of 1 MB of Chinese", 100, article("\u5317\u4eac\u5e02\u6c11" * (MB // 12))),
        Attack("word", "100 articles of 1 MB that is one word", 100, article("w" * (MB - 100))),
        Attack("100MB", "one record of 100 MB, zstd", 1, b"a" * 100 * MB, "zstd"),
    ]
    return made + [_kept(attack) for attack in made if attack.codec != "none"]


def _kept(attack: Attack) -> Attack:
    """The same attack on a topic that keeps compressed batches, as most existing topics do."""
    return replace(attack, name=f"{attack.name}-kept", what=f"{attack.what}, kept packed", topic=_AS_USUAL)


def file_attacks() -> list[FileAttack]:
    """Attacks on `enricher enrich`."""
    return [FileAttack("file", "enrich FILE.gz: 100 lines of 66 MB in 6.6 MB", 100, article("a" * 66 * MB))]
