"""Compares the versions that the topic wants with those that the index holds, in a temporary database on disk.

So memory does not grow with the number of documents. SQLite removes the file when it is closed or the process ends.
Reading a version from a record shares no rule with the indexer. No version is expected of records from which no document can
be made: the indexer writes them to its dead letters.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal

import orjson
from confluent_kafka import Message

from enricher.errors import SettingsError
from enricher.worker.articles.record_formats import record_as_json
from enricher.worker.kafka.metadata import headers_of

_CHUNK = 10_000
_TABLES = """
PRAGMA journal_mode = OFF;
PRAGMA synchronous = OFF;
PRAGMA cache_size = -32768;
CREATE TABLE documents (id TEXT PRIMARY KEY, wanted INT, deleted INT, held INT) WITHOUT ROWID;
CREATE VIEW differences (kind, id, wanted, held) AS SELECT
    CASE WHEN wanted IS NULL THEN 'surplus'
         WHEN deleted THEN 'came back'
         WHEN held IS NULL THEN 'missing'
         WHEN held < wanted THEN 'older'
         ELSE 'newer' END, id, wanted, held
    FROM documents WHERE iif(deleted, NULL, wanted) IS NOT held;
"""
_WANT = """
INSERT INTO documents VALUES (?, ?, ?, NULL) ON CONFLICT (id) DO UPDATE SET
    deleted = iif(excluded.wanted >= wanted, excluded.deleted, deleted),
    wanted = max(wanted, excluded.wanted)
"""
_HOLD = """
INSERT INTO documents VALUES (?, NULL, 0, ?) ON CONFLICT (id) DO UPDATE SET held = max(ifnull(held, 0), excluded.held)
"""
_LEAVE_OUT = "DELETE FROM documents WHERE id = ?"
_REFUSE = "DELETE FROM documents WHERE id = ? AND wanted = ? AND held IS NOT wanted"


class VersionComparison:
    """Notes the versions that the topic wants up to some offsets, then those that the index holds; lists differences."""

    def __init__(self) -> None:
        self._database = sqlite3.connect("")  # a temporary file
        self._database.executescript(_TABLES)

    def close(self) -> None:
        """Remove the database."""
        self._database.close()

    def want(self, records: Iterable[Wanted]) -> None:
        """Note records in the order of their partitions; the highest version of an id counts."""
        self._write(_WANT, ((each.id, each.version, each.deleted) for each in records))

    def hold(self, versions: Iterable[tuple[str, int]]) -> int:
        """Note ids and versions of the documents in the index; returns how many there are."""
        return self._write(_HOLD, versions)

    def leave_out(self, records: Iterable[Wanted]) -> None:
        """Judge no document that has a later record: the index was read before or after it was indexed."""
        self._write(_LEAVE_OUT, ((each.id,) for each in records))

    def refuse(self, records: Iterable[Wanted]) -> int:
        """Judge no document whose newest version became a dead letter of the indexer; returns how many there are."""
        before = self._database.total_changes
        self._write(_REFUSE, ((each.id, each.version) for each in records))
        return self._database.total_changes - before

    @property
    def documents(self) -> int:
        """How many documents the index should hold."""
        [count] = self._database.execute(
            "SELECT count(*) FROM documents WHERE NOT deleted AND wanted NOTNULL"
        ).fetchone()
        return int(count)

    def differences(self) -> Iterator[tuple[str, str, int | None, int | None]]:
        """All differences: kind, id, the version that is wanted, and the one that is held."""
        return self._database.execute("SELECT * FROM differences ORDER BY kind")

    def _write(self, statement: str, rows: Iterable[tuple[Any, ...]]) -> int:
        left, written = iter(rows), 0
        while chunk := list(islice(left, _CHUNK)):
            self._database.executemany(statement, chunk)
            written += len(chunk)
        return written


_MAX_ID_BYTES = 512
_MAX_VERSION = 2**63 - 1
_DIGITS = re.compile(rb"[0-9]{1,19}")


@dataclass(frozen=True, slots=True)
class Wanted:
    """The version of a document that the index should have after one record, or should have deleted."""

    id: str
    version: int
    deleted: bool


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
    return Wanted(name, version, deleted=value is None)
