"""`enricher index verify`: the index must hold every document of the output topic in its newest version, and nothing else.

It works while records are written and indexed. First the ends of the topic are noted, and everything before them is read.
Once the indexers have committed these ends, the index must hold at least those records. The index is then read as it is at
one moment, and the newer versions in it must be in the topic after these ends. It shares no rule with the indexer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal

import orjson
import typer
from confluent_kafka import Consumer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from enricher.errors import MissingTopic, RecoveryExhausted, SearchUnavailable
from enricher.indexing.index_run import index_config
from enricher.indexing.search_clients import open_index
from enricher.indexing.search_index import SearchIndex
from enricher.indexing.version_comparison import Kind, VersionComparison, Wanted, wanted_by
from enricher.worker.commands.console import Ticker, data_console, remark_console, write_line
from enricher.worker.kafka.errors import Complaint, broker_errors
from enricher.worker.kafka.metadata import answer_to, bounds_of, foreign, ours, partition_of, partitions_of
from enricher.worker.kafka.partition_reader import Ranges, committed_offsets, lone_consumer
from enricher.worker.kafka.properties import KafkaConfig
from enricher.worker.kafka.ranges import Progress, RangeReader
from enricher.worker.records import Partition
from enricher.worker.runtime.deadlines import Deadline, until
from enricher.worker.settings import Settings, load_settings

BROKEN = 8
"""The exit code if the index is not right."""
_ID_CHARS = 60
_NOTES: dict[Kind, str] = {
    "refused": "{:,} newest records are dead letters of the indexer: the index refused them",
    "older than the topic": "{:,} documents are older than what retention has left of the topic: they cannot be checked",
}


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

    It compares the output topic with the index. Records may be written and indexed meanwhile: everything that was in the
    topic at the start must be in the index, and newer versions in the index must be in the topic by the end. It compares
    versions, not texts, and names documents by their ids.

    Exit code: 0 if the index is right, 8 if not, 2 for settings, 4 for the broker or an index that refuses, 6 if the index
    does not answer. It needs READ on the output topic, on the indexer's dead letters and on its group, and the right to
    refresh and search the index. Its memory does not grow with the topic (40 MB): versions are in a temporary file, which
    takes 40 bytes and twice the length of the id for each document.
    """
    settings = load_settings()
    report = _verify(settings, also or [], wait_s)
    if as_json:
        write_line(orjson.dumps(as_json_object(report, settings), option=orjson.OPT_INDENT_2))
    else:
        print_report(report, settings, data_console())
    raise typer.Exit(0 if report.holds else BROKEN)


def _verify(settings: Settings, also: Sequence[str], wait_s: float) -> IndexReport:
    config = index_config(settings)
    topics = VerifiedTopics(
        outputs=tuple(dict.fromkeys((config.input_topic, *also))),
        dead_letters=config.dead_letter_topic,
        identified_by=settings.index.document_id,
    )
    with closing(open_index(settings.index)) as index, Ticker(remark_console()) as ticker:
        try:
            return verify_index(config, topics, index, wait_s=wait_s, progress=ticker.show_step_and_time)
        except SearchUnavailable as error:
            message = f"the search index stopped answering: {error}. Nothing was changed; run it again"
            raise RecoveryExhausted(message) from error


def print_report(report: IndexReport, settings: Settings, console: Console) -> None:
    """Print a report."""
    table = Table("", "check", "documents", "what must hold, or where it does not")
    for kind, rule in RULES.items():
        count = report.counts.get(kind, 0)
        state = "[bold red]FAILED[/]" if count else "[green]ok[/]"
        table.add_row(state, kind, f"{count:,}" if count else "", escape(rule if not count else _places(report, kind)))
    console.print(table)
    console.print(
        f"counted: {report.records:,} records, {report.wanted:,} documents, {report.deleted:,} deleted ones; "
        f"{report.held:,} in the index",
        soft_wrap=True,
    )
    for note in notes(report):
        console.print(f"[yellow]note[/]: {escape(note)}", soft_wrap=True)
    verdict = "[green]the index is right[/]" if report.holds else "[bold red]the index is wrong[/]"
    console.print(f"{verdict}: {escape(f'{settings.kafka.output_topic} -> {settings.index.name}')}", soft_wrap=True)


def notes(report: IndexReport) -> list[str]:
    """Sentences about findings that break no rule and should be known."""
    found = [text.format(count) for kind, text in _NOTES.items() if (count := report.counts.get(kind, 0))]
    if report.behind:
        found.append(
            f"the indexers had not committed {report.behind:,} offsets: missing or newer versions may still come"
        )
    if report.without_document:
        found.append(
            f"{report.without_document:,} records make no document: they have no id or no version, or, with "
            "index.document_id=id, a key that is not the id"
        )
    if report.in_several_partitions:
        found.append(
            f"{report.in_several_partitions:,} documents have records in several partitions, which versions do not order: "
            "does a producer use another partitioner?"
        )
    return found


def as_json_object(report: IndexReport, settings: Settings) -> dict[str, Any]:
    """The object that `--json` prints."""
    return {
        "holds": report.holds,
        "topic": settings.kafka.output_topic,
        "index": settings.index.name,
        "records": report.records,
        "documents": report.wanted,
        "deleted": report.deleted,
        "in_index": report.held,
        "behind": report.behind,
        "differences": [
            {
                "kind": kind,
                "broken": kind in RULES,
                "count": count,
                "examples": [
                    {"id": each.id, "wanted": each.wanted, "held": each.held} for each in report.examples[kind]
                ],
            }
            for kind, count in report.counts.items()
        ],
        "notes": notes(report),
    }


def _places(report: IndexReport, kind: Kind) -> str:
    examples = report.examples[kind]
    more = report.counts[kind] - len(examples)
    return f"violated: {RULES[kind]}\n" + "\n".join(map(_place, examples)) + (f"\nand {more:,} more" if more else "")


def _place(difference: Difference) -> str:
    shown = repr(difference.id)
    shown = shown if len(shown) <= _ID_CHARS else f"{shown[:_ID_CHARS]}..."
    wanted = "" if difference.wanted is None else f", version {difference.wanted} in the topic"
    held = "" if difference.held is None else f", {difference.held} in the index"
    return f"{shown}{wanted}{held}"


EXAMPLES = 10
RULES: Mapping[Kind, str] = {
    "missing": "the newest record of the document is not deleted, so the index holds it",
    "older": "the index holds the newest version",
    "newer": "a record has the version that the index holds",
    "came back": "a deleted document is not in the index",
    "surplus": "every document in the index comes from a record",
    "twice": "a document is in one index only, also behind an alias",
}
"""The rules, by the kind of difference that breaks them."""
_NEWEST = 2**63 - 1
_ASK_AGAIN_S = 0.5


@dataclass(frozen=True, slots=True)
class Difference:
    """A document, its version by the topic, and its version in the index; None where it is missing."""

    id: str
    wanted: int | None
    held: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexReport:
    """`counts`: differences by kind, also of kinds that break no rule. `behind`: offsets that were not committed yet."""

    wanted: int
    deleted: int
    held: int
    records: int
    without_document: int
    in_several_partitions: int
    behind: int
    counts: Mapping[Kind, int]
    examples: Mapping[Kind, list[Difference]]

    @property
    def broken(self) -> list[Kind]:
        """The kinds of differences that were found and break a rule."""
        return [kind for kind in RULES if self.counts.get(kind)]

    @property
    def holds(self) -> bool:
        """Whether the index is right."""
        return not self.broken


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedTopics:
    """The indexed topics, the topic of the indexers' dead letters, and what identifies a document (`index.document_id`)."""

    outputs: tuple[str, ...]
    dead_letters: str
    identified_by: Literal["key", "id"]


def verify_index(
    config: KafkaConfig, topics: VerifiedTopics, index: SearchIndex, *, wait_s: float, progress: Progress
) -> IndexReport:
    """Compare the index with the topics. `config` names the indexers' group; waits for it at most `wait_s` seconds.

    Raises BrokerError, MissingTopic, SearchUnavailable.
    """
    with (
        closing(_Offsets(config)) as offsets,
        closing(RangeReader(config, committed_only=True, progress=progress)) as reader,
        closing(VersionComparison()) as comparison,
    ):
        verification = _Verification(topics, offsets, reader, comparison)
        return verification.run(index, wait_s, progress)


class _Offsets:
    """Asks the broker for the ends of topics and for the offsets that the group has committed."""

    def __init__(self, config: KafkaConfig) -> None:
        self._timeout_s = config.request_timeout_s
        self._complaint = Complaint()
        self._consumer: Consumer = lone_consumer(config, self._complaint, {"isolation.level": "read_committed"})

    def close(self) -> None:
        """Close the connection."""
        self._consumer.close()

    def ranges(self, topic: str, *, may_be_missing: bool = False) -> dict[int, tuple[int, int]]:
        """The first offset of each partition and the end of what is committed. Raises BrokerError."""
        with broker_errors(self._consumer, f"asking for the ends of '{topic}'", self._complaint):
            try:
                partitions = answer_to(partial(partitions_of, self._consumer, topic), Deadline(self._timeout_s))
            except MissingTopic:
                if may_be_missing:
                    return {}
                raise
            return {each.number: bounds_of(self._consumer, each, self._timeout_s) for each in partitions}

    def behind(self, ranges: Mapping[Partition, tuple[int, int]]) -> int:
        """Offsets in the ranges that the group has not committed. Raises BrokerError."""
        with broker_errors(self._consumer, "asking for the offsets of the indexers' group", self._complaint):
            places = [foreign(each) for each, (begin, end) in ranges.items() if begin < end]
            ask = partial(committed_offsets, self._consumer, places)
            committed = {ours(each): each.offset for each in answer_to(ask, Deadline(self._timeout_s))}
        left = (end - max(begin, committed.get(each, begin)) for each, (begin, end) in ranges.items())
        return sum(max(0, each) for each in left)


class _Verification:
    """One comparison of an index with its topics."""

    def __init__(
        self, topics: VerifiedTopics, offsets: _Offsets, reader: RangeReader, comparison: VersionComparison
    ) -> None:
        self._topics = topics
        self._offsets = offsets
        self._reader = reader
        self._comparison = comparison
        self._records = self._without_document = 0
        self._first_versions: dict[Partition, int] = {}
        self._after_last: dict[Partition, int] = {}
        """The offset after the last record of each partition; markers of transactions may follow it."""

    def run(self, index: SearchIndex, wait_s: float, progress: Progress) -> IndexReport:
        """Read the topics and the index, in the order that the module describes, and compare them."""
        outputs, comparison = self._topics.outputs, self._comparison
        ranges = {topic: self._offsets.ranges(topic) for topic in outputs}
        for topic in outputs:
            comparison.want(self._wanted_in(topic, ranges[topic]))
        # A partition that begins above 0 has lost its oldest records, which may have written the oldest documents.
        begins = {Partition(topic, number): begin for topic in outputs for number, (begin, _) in ranges[topic].items()}
        if cut := [each for each, begin in begins.items() if begin > 0]:
            comparison.forgive_below(max(self._first_versions.get(each, _NEWEST) for each in cut))
        behind = self._wait_for_indexers(begins, wait_s, progress)
        index.refresh()
        comparison.hold(index.versions(), lambda held: progress("reading the index, documents", held, held))
        for topic in outputs:
            later = self._offsets.ranges(topic)
            new = {number: (end, later[number][1]) for number, (_, end) in ranges[topic].items()}
            comparison.want_later(self._wanted_in(topic, new))
        if comparison.counts().keys() & {"missing", "older"}:
            dead_letters = self._topics.dead_letters
            comparison.refuse(self._wanted_in(dead_letters, self._offsets.ranges(dead_letters, may_be_missing=True)))
        return self._report(behind)

    def _wanted_in(self, topic: str, ranges: Ranges) -> Iterator[Wanted]:
        for message in self._reader.read(topic, ranges, f"reading {topic}"):
            wanted, partition = wanted_by(message, self._topics.identified_by), partition_of(message)
            if topic in self._topics.outputs:
                self._records += 1
                self._without_document += wanted is None
                self._after_last[partition] = (message.offset() or 0) + 1
            if wanted is not None:
                self._first_versions.setdefault(partition, wanted.version)
                yield wanted

    def _wait_for_indexers(self, begins: Mapping[Partition, int], wait_s: float, progress: Progress) -> int:
        ranges = {each: (begin, self._after_last.get(each, begin)) for each, begin in begins.items()}
        behind = total = sum(end - begin for begin, end in ranges.values())

        def caught_up() -> bool:
            nonlocal behind
            behind = self._offsets.behind(ranges)
            progress("waiting for the indexers", total - behind, total)
            return not behind

        until(caught_up, Deadline(wait_s), pause_s=_ASK_AGAIN_S)
        return behind

    def _report(self, behind: int) -> IndexReport:
        comparison = self._comparison
        counts = comparison.counts()
        return IndexReport(
            wanted=comparison.wanted,
            deleted=comparison.deleted,
            held=comparison.held,
            records=self._records,
            without_document=self._without_document,
            in_several_partitions=comparison.in_several_partitions,
            behind=behind,
            counts=counts,
            examples={kind: [Difference(*each) for each in comparison.examples(kind, EXAMPLES)] for kind in counts},
        )
