"""`enricher index verify`: the index must hold every document of the output topic in its newest version, and nothing else.

It works while records are written and indexed. First the ends of the topic are noted, and everything before them is read.
Once the indexers have committed these ends, the index is read. Documents with records after the ends are not judged.

Both sides are compared in a temporary database on disk, so memory does not grow with the number of documents. SQLite removes
the file when it is closed or the process ends. Reading a version from a record shares no rule with the indexer. No version
is expected of records from which no document can be made: the indexer writes them to its dead letters.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Annotated, Any, Literal

import orjson
import typer
from confluent_kafka import Message
from rich.console import Console
from rich.markup import escape

from enricher.errors import MissingTopic, RecoveryExhausted, SearchUnavailable, SettingsError
from enricher.indexing.index_run import index_config
from enricher.indexing.search_clients import open_index
from enricher.indexing.search_index import SearchIndex
from enricher.worker.articles.record_formats import record_as_json
from enricher.worker.commands.console import Ticker, data_console, remark_console, write_line
from enricher.worker.kafka.errors import Complaint, broker_errors
from enricher.worker.kafka.metadata import answer_to, bounds_of, foreign, headers_of, ours, partition_of, partitions_of
from enricher.worker.kafka.partition_reader import Ranges, committed_offsets, lone_consumer
from enricher.worker.kafka.properties import KafkaConfig
from enricher.worker.kafka.ranges import Progress, RangeReader
from enricher.worker.records import Partition
from enricher.worker.runtime.deadlines import Deadline, until
from enricher.worker.settings import Settings, load_settings

BROKEN = 8
"""The exit code if the index is not right."""
_ID_CHARS = 60
_EXAMPLES = 10
_ASK_AGAIN_S = 0.5


def verify_against_topic(
    *,
    wait_s: Annotated[
        float,
        typer.Option(
            "--wait", min=0, max=604_800, metavar="SECONDS", help="Let the indexers catch up first, at most this long."
        ),
    ] = 60.0,
    also: Annotated[
        list[str] | None,
        typer.Option(metavar="TOPIC", help="Another indexed topic, such as that of a replay; may be repeated."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check that the index holds the newest version of every document, nothing else, and nothing deleted. Only reads.

    It compares what was in the output topic at the start with the index. Documents with records that come meanwhile are not
    judged. It compares versions, not texts, and names documents by their ids.

    Exit code: 0 if the index is right, 8 if not, 2 for settings, 4 for the broker or an index that refuses, 6 if the index
    does not answer. It needs READ on the output topic, on the indexer's dead letters and on its group, and the right to
    refresh and search the index. Its memory does not grow with the topic (40 MB): versions are in a temporary file, which
    takes 40 bytes and the length of the id for each document.
    """
    settings = load_settings()
    config = index_config(settings)
    topics = tuple(dict.fromkeys((config.input_topic, *(also or []))))
    with closing(open_index(settings.index)) as index, Ticker(remark_console()) as ticker:
        try:
            report = verify_index(settings, topics, index, wait_s=wait_s, progress=ticker.show_step_and_time)
        except SearchUnavailable as error:
            message = f"the search index stopped answering: {error}. Nothing was changed; run it again"
            raise RecoveryExhausted(message) from error
    if as_json:
        write_line(orjson.dumps(as_json_object(report), option=orjson.OPT_INDENT_2))
    else:
        print_report(report, data_console())
    raise typer.Exit(0 if report.holds else BROKEN)


@dataclass(slots=True)
class IndexReport:
    """Counts and differences. `behind`: offsets that the indexers had not committed.

    `refused`: newest records of documents that are dead letters of the indexer.
    """

    records: int = 0
    without_document: int = 0
    documents: int = 0
    held: int = 0
    behind: int = 0
    refused: int = 0
    incomplete: bool = False
    """Whether retention has removed records, so that nobody can tell whether a document without a record is surplus."""
    counts: dict[str, int] = field(default_factory=dict)
    examples: dict[str, list[tuple[str, int | None, int | None]]] = field(default_factory=dict)
    """Some documents of each kind of difference: id, the version that is wanted, and the one that is held."""

    @property
    def holds(self) -> bool:
        """Whether the index is right."""
        return not self.counts

    @property
    def notes(self) -> list[str]:
        """Sentences about findings that break no rule and should be known."""
        sentences = {
            f"the indexers had not committed {self.behind:,} offsets: what is missing or older may still come": self.behind,
            f"{self.refused:,} newest records are dead letters of the indexer: the index refused them": self.refused,
            "retention has removed records, so documents without a record were not judged": self.incomplete,
            f"{self.without_document:,} records make no document: they have no id or no version, or, with "
            "index.document_id=id, a key that is not the id": self.without_document,
        }
        return [sentence for sentence, applies in sentences.items() if applies]


def print_report(report: IndexReport, console: Console) -> None:
    """Print a report for people."""
    say = partial(console.print, soft_wrap=True)
    for kind, count in report.counts.items():
        say(f"[bold red]{kind}[/]: {count:,} documents")
        for name, wanted, held in report.examples[kind]:
            shown = repr(name) if len(name) <= _ID_CHARS else f"{name[:_ID_CHARS]!r}..."
            say(f"  {escape(shown)}: version {wanted or '-'} in the topic, {held or '-'} in the index", highlight=False)
    for note in report.notes:
        say(f"[yellow]note[/]: {note}")
    verdict = "[green]the index is right[/]" if report.holds else "[bold red]the index is wrong[/]"
    say(f"{verdict}: {report.records:,} records make {report.documents:,} documents; {report.held:,} in the index")


def as_json_object(report: IndexReport) -> dict[str, Any]:
    """The object that `--json` prints."""
    return {
        "holds": report.holds,
        "records": report.records,
        "documents": report.documents,
        "in_index": report.held,
        "behind": report.behind,
        "differences": [
            {
                "kind": kind,
                "count": count,
                "examples": [
                    {"id": name, "wanted": wanted, "held": held} for name, wanted, held in report.examples[kind]
                ],
            }
            for kind, count in report.counts.items()
        ],
        "notes": report.notes,
    }


def verify_index(
    settings: Settings, topics: Sequence[str], index: SearchIndex, *, wait_s: float, progress: Progress
) -> IndexReport:
    """Compare the index with the topics, after waiting for the indexers' group at most `wait_s` seconds.

    Raises BrokerError, MissingTopic, SearchUnavailable.
    """
    config, report = index_config(settings), IndexReport()
    with (
        closing(_Offsets(config)) as offsets,
        closing(RangeReader(config, committed_only=True, progress=progress)) as reader,
        closing(VersionComparison()) as comparison,
    ):
        after_last: dict[Partition, int] = {}
        """The offset after the last record of each partition; markers of transactions may follow it."""

        def wanted_in(topic: str, ranges: Ranges) -> Iterator[Wanted]:
            for message in reader.read(topic, ranges, f"reading {topic}"):
                after_last[partition_of(message)] = (message.offset() or 0) + 1
                report.records += 1
                if wanted := wanted_by(message, settings.index.document_id):
                    yield wanted
                else:
                    report.without_document += 1

        ranges = {topic: offsets.ranges(topic) for topic in topics}
        for topic in topics:
            comparison.want(wanted_in(topic, ranges[topic]))
        report.incomplete = any(begin > 0 for bounds in ranges.values() for begin, _ in bounds.values())
        report.documents, records, without = comparison.documents, report.records, report.without_document
        report.behind = _wait_for_indexers(offsets, after_last, wait_s, progress)
        index.refresh()
        report.held = comparison.hold(index.versions())
        for topic in topics:
            later = offsets.ranges(topic)
            new = {number: (end, later[number][1]) for number, (_, end) in ranges[topic].items()}
            comparison.leave_out(wanted_in(topic, new))
        if next(comparison.differences(), None):
            letters = offsets.ranges(config.dead_letter_topic, may_be_missing=True)
            report.refused = comparison.refuse(wanted_in(config.dead_letter_topic, letters))
        report.records, report.without_document = records, without
        for kind, name, wanted, held in comparison.differences():
            if kind == "surplus" and report.incomplete:
                continue
            report.counts[kind] = report.counts.get(kind, 0) + 1
            if len(some := report.examples.setdefault(kind, [])) < _EXAMPLES:
                some.append((name, wanted, held))
    return report


def _wait_for_indexers(offsets: _Offsets, ends: Mapping[Partition, int], wait_s: float, progress: Progress) -> int:
    """How many offsets before these ends the group has not committed, after waiting for it."""
    behind, total = 0, sum(ends.values())

    def caught_up() -> bool:
        nonlocal behind
        behind = offsets.behind(ends)
        progress("waiting for the indexers", total - behind, total)
        return not behind

    until(caught_up, Deadline(wait_s), pause_s=_ASK_AGAIN_S)
    return behind


class _Offsets:
    """Asks the broker for the ends of topics and for the offsets that the group has committed. Raises BrokerError."""

    def __init__(self, config: KafkaConfig) -> None:
        self._timeout_s = config.request_timeout_s
        self._complaint = Complaint()
        self._consumer = lone_consumer(config, self._complaint, {"isolation.level": "read_committed"})

    def close(self) -> None:
        """Close the connection."""
        self._consumer.close()

    def ranges(self, topic: str, *, may_be_missing: bool = False) -> dict[int, tuple[int, int]]:
        """The first offset of each partition and the end of what is committed."""
        with broker_errors(self._consumer, f"asking for the ends of '{topic}'", self._complaint):
            try:
                partitions = answer_to(partial(partitions_of, self._consumer, topic), Deadline(self._timeout_s))
            except MissingTopic:
                if may_be_missing:
                    return {}
                raise
            return {each.number: bounds_of(self._consumer, each, self._timeout_s) for each in partitions}

    def behind(self, ends: Mapping[Partition, int]) -> int:
        """Offsets before these ends that the group has not committed."""
        with broker_errors(self._consumer, "asking for the offsets of the indexers' group", self._complaint):
            ask = partial(committed_offsets, self._consumer, [foreign(each) for each in ends])
            committed = {ours(each): max(0, each.offset) for each in answer_to(ask, Deadline(self._timeout_s))}
        return sum(max(0, end - committed.get(each, 0)) for each, end in ends.items())


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
