"""Compares the versions that the topic wants with those that the index holds, in a temporary database on disk.

So memory does not grow with the number of documents. SQLite removes the file when it is closed or the process ends.
Reading a version from a record shares no rule with the indexer. No version is expected of records from which no document can
be made: the indexer writes them to its dead letters.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal

import orjson
from confluent_kafka import Message

from enricher.errors import SettingsError
from enricher.worker.articles.record_formats import record_as_json
from enricher.worker.kafka.metadata import headers_of

Kind = Literal["missing", "older", "newer", "came back", "surplus", "twice", "refused", "older than the topic"]

_CHUNK = 10_000
_TABLES = """
PRAGMA journal_mode = OFF;
PRAGMA synchronous = OFF;
PRAGMA cache_size = -32768;
CREATE TABLE wanted (id TEXT PRIMARY KEY, version INT, deleted INT, partition INT, several INT) WITHOUT ROWID;
CREATE TABLE held (id TEXT PRIMARY KEY, version INT, copies INT) WITHOUT ROWID;
CREATE TABLE later (id TEXT, version INT, deleted INT, PRIMARY KEY (id, version, deleted)) WITHOUT ROWID;
CREATE TABLE refused (id TEXT, version INT, PRIMARY KEY (id, version)) WITHOUT ROWID;
CREATE TABLE horizon (version INT);
CREATE VIEW differences (id, kind, wanted, held) AS
    SELECT w.id, 'missing', w.version, NULL FROM wanted w LEFT JOIN held h USING (id)
        WHERE NOT w.deleted AND h.id IS NULL
        AND NOT EXISTS (SELECT 1 FROM later l WHERE l.id = w.id AND l.version >= w.version AND l.deleted)
    UNION ALL
    SELECT w.id, 'older', w.version, h.version FROM held h JOIN wanted w USING (id)
        WHERE NOT w.deleted AND h.version < w.version
    UNION ALL
    SELECT w.id, 'came back', w.version, h.version FROM held h JOIN wanted w USING (id)
        WHERE w.deleted AND h.version <= w.version
    UNION ALL
    SELECT w.id, 'newer', w.version, h.version FROM held h JOIN wanted w USING (id)
        WHERE h.version > w.version
        AND NOT EXISTS (SELECT 1 FROM later l WHERE l.id = h.id AND l.version = h.version AND NOT l.deleted)
    UNION ALL
    SELECT h.id, iif(h.version < (SELECT version FROM horizon), 'older than the topic', 'surplus'), NULL, h.version
        FROM held h LEFT JOIN wanted w USING (id)
        WHERE w.id IS NULL
        AND NOT EXISTS (SELECT 1 FROM later l WHERE l.id = h.id AND l.version = h.version AND NOT l.deleted)
    UNION ALL
    SELECT h.id, 'twice', NULL, h.version FROM held h WHERE h.copies > 1;
CREATE VIEW findings (id, kind, wanted, held) AS
    SELECT d.id, iif(r.id IS NULL, d.kind, 'refused'), d.wanted, d.held
        FROM differences d LEFT JOIN refused r ON d.kind IN ('missing', 'older') AND r.id = d.id AND r.version = d.wanted;
"""
_HOLD = """
INSERT INTO held VALUES (?, ?, 1) ON CONFLICT (id) DO UPDATE SET
    copies = copies + 1,
    version = max(version, excluded.version)
"""
_WANT = """
INSERT INTO wanted VALUES (?, ?, ?, ?, 0) ON CONFLICT (id) DO UPDATE SET
    several = several OR partition <> excluded.partition,
    deleted = iif(excluded.version >= version, excluded.deleted, deleted),
    version = max(version, excluded.version)
"""


class VersionComparison:
    """Notes the versions that the topic wants up to some offsets, and those that the index holds; then lists differences.

    The index may or may not hold records after these offsets, which came while it was read.
    """

    def __init__(self) -> None:
        self._database = sqlite3.connect("")  # a temporary file
        self._database.executescript(_TABLES)

    def close(self) -> None:
        """Remove the database."""
        self._database.close()

    def want(self, records: Iterable[Wanted]) -> None:
        """Note records in the order of their partitions; the highest version of an id counts."""
        self._insert(_WANT, ((each.id, each.version, each.deleted, each.partition) for each in records))

    def hold(self, versions: Iterable[tuple[str, int]], progress: Callable[[int], None] = lambda _held: None) -> None:
        """Note ids and versions of documents in the index. `progress` gets the number of documents so far."""
        self._insert(_HOLD, versions, progress)

    def want_later(self, records: Iterable[Wanted]) -> None:
        """Note records that were written after the first ones."""
        rows = ((each.id, each.version, each.deleted) for each in records)
        self._insert("INSERT OR IGNORE INTO later VALUES (?, ?, ?)", rows)

    def refuse(self, records: Iterable[Wanted]) -> None:
        """Note dead letters of the indexer: the index will not hold these versions."""
        self._insert("INSERT OR IGNORE INTO refused VALUES (?, ?)", ((each.id, each.version) for each in records))

    def forgive_below(self, version: int) -> None:
        """Note that retention has removed records, so a document below this version may come from one of them."""
        self._database.execute("INSERT INTO horizon VALUES (?)", (version,))

    @property
    def wanted(self) -> int:
        """Documents that the index should hold."""
        return self._count("SELECT count(*) FROM wanted WHERE NOT deleted")

    @property
    def deleted(self) -> int:
        """Documents that the index should not hold."""
        return self._count("SELECT count(*) FROM wanted WHERE deleted")

    @property
    def held(self) -> int:
        """Documents in the index."""
        return self._count("SELECT count(*) FROM held")

    @property
    def in_several_partitions(self) -> int:
        """Documents whose records are in more than one partition, so that no version orders them."""
        return self._count("SELECT count(*) FROM wanted WHERE several")

    def counts(self) -> dict[Kind, int]:
        """How many documents differ, by kind."""
        return dict(self._database.execute("SELECT kind, count(*) FROM findings GROUP BY kind"))

    def examples(self, kind: Kind, limit: int) -> list[tuple[str, int | None, int | None]]:
        """Some of these documents: id, the version that is wanted, and the one that is held."""
        query = "SELECT id, wanted, held FROM findings WHERE kind = ? LIMIT ?"
        return list(self._database.execute(query, (kind, limit)))

    def _count(self, query: str) -> int:
        return int(self._database.execute(query).fetchone()[0])

    def _insert(
        self, statement: str, rows: Iterable[tuple[Any, ...]], progress: Callable[[int], None] = lambda _inserted: None
    ) -> None:
        left, inserted = iter(rows), 0
        while chunk := list(islice(left, _CHUNK)):
            self._database.executemany(statement, chunk)
            inserted += len(chunk)
            progress(inserted)


_MAX_ID_BYTES = 512
_MAX_VERSION = 2**63 - 1
_DIGITS = re.compile(rb"[0-9]{1,19}")


@dataclass(frozen=True, slots=True)
class Wanted:
    """The version of a document that the index should have after one record, or should have deleted."""

    id: str
    version: int
    deleted: bool
    partition: int


def wanted_by(message: Message, identified_by: Literal["key", "id"]) -> Wanted | None:
    """The version that a record asks for; None if no document can be made. `identified_by`: `index.document_id`."""
    headers = dict(headers_of(message))
    digits, value = headers.get("enricher.version") or b"", message.value()
    if not _DIGITS.fullmatch(digits) or (version := int(digits)) > _MAX_VERSION:
        return None
    key = message.key()
    try:
        name = key.decode() if isinstance(key, bytes) else key
        if value is not None and (identified_by == "id" or not name):
            text = value if isinstance(value, bytes) else value.encode()
            name = orjson.loads(record_as_json(text, headers.get("content-type")))["id"]
            if key and name.encode() != (key if isinstance(key, bytes) else key.encode()):
                return None  # no tombstone would delete it
    except SettingsError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    if not isinstance(name, str) or not 0 < len(name.encode()) <= _MAX_ID_BYTES:
        return None
    return Wanted(name, version, deleted=value is None, partition=message.partition() or 0)
