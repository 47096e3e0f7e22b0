"""After the run: every committed input has exactly one output, the right one, in order, and nothing else is there.

Reads past the proxy with separate clients, and takes the expected outputs from `reference` alone. Committed offsets are read
from the broker's `__consumer_offsets` log, whose records are Kafka's OffsetCommitKey and OffsetCommitValue: a sample can be
stale, because a coordinator that was frozen or has just taken over may give an old answer. The log cannot.
"""

from __future__ import annotations

import re
import struct
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from confluent_kafka import Message

from tools.chaos.incarnations import Incarnation, Ledger, Place, Wanted, digest, topic_id_of
from tools.reading import OMITTED, STAGE, InputId, Reader, headers_of, source_of
from tools.topics import Topics

_SHOWN = 5
_SHOWN_BYTES = 300


@dataclass(slots=True)
class Findings:
    """Counts, and the first few examples of each violation."""

    inputs: int = 0
    outputs: int = 0
    dead_letters: int = 0
    uncommitted: int = 0
    """Records of aborted transactions: if there are none, no fault interrupted a transaction."""
    gone: int = 0
    """Inputs that were deleted with their topic before they had an output."""
    wrong: dict[str, list[str]] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)

    @property
    def good(self) -> bool:
        return not self.counts

    def note(self, what: str, example: object) -> None:
        self.counts[what] += 1
        if len(self.wrong.setdefault(what, [])) < _SHOWN:
            self.wrong[what].append(str(example))


def check(names: Topics, seen: Mapping[InputId, int], past: Sequence[Incarnation] = ()) -> Findings:
    """Compare the topics.

    `seen`: how often a reader saw an output of each input during the run. `past`: the deleted input topics of the same name,
    oldest first.
    """
    findings = Findings()
    reader = Reader(names.bootstrap_servers, names.group)
    present = Incarnation(topic_id_of(names.bootstrap_servers, names.input))
    present.add(reader.records(names.input))
    ledger = Ledger([*past, present])
    findings.inputs = sum(len(each.inputs) for each in ledger.incarnations)
    findings.outputs = _check_outputs(findings, reader, names.output, ledger, dead=False)
    findings.dead_letters = _check_outputs(findings, reader, names.dead_letters, ledger, dead=True)
    _check_seen(findings, ledger, seen)
    _check_inputs(findings, ledger)
    _check_offsets(findings, reader, names)
    for before, after in falls(commits_of(reader.records(OFFSETS_TOPIC), names.group, names.input)):
        findings.note("committed offsets that went back", f"{after} after {before}")
    return findings


def _check_outputs(findings: Findings, reader: Reader, topic: str, ledger: Ledger, *, dead: bool) -> int:
    """Compare each output with its input; returns how many outputs there are."""
    newest: dict[tuple[int, int], tuple[int, int]] = {}
    count = 0
    for count, message in enumerate(reader.records(topic), start=1):  # noqa: B007  it is returned
        input_id = source_of(message)
        place = ledger.find(input_id)
        if place is None:
            what = "invented" if ledger.is_clear(input_id) else "without the id of one of several topics"
            findings.note(what, f"{topic} {message.partition()} {message.offset()} of {input_id}")
            continue
        ledger.answers[place] += 1
        _check_content(findings, message, ledger[place], input_id, dead=dead)
        if message.partition() != place.partition:
            findings.note("in another partition than its input", f"{topic} {message.partition()} of {input_id}")
        stream, at = (message.partition() or 0, place.partition), (place.number, place.offset)
        if at < newest.get(stream, (0, -1)):
            findings.note("out of order", f"{topic} {input_id} after {newest[stream]}")
        newest[stream] = at
    findings.uncommitted += reader.count(topic, "read_uncommitted") - count
    return count


def _check_content(findings: Findings, message: Message, wanted: Wanted, input_id: InputId, *, dead: bool) -> None:
    headers, value = headers_of(message), message.value()
    stage = headers.get(STAGE, b"").decode()
    right_topic = stage == wanted.kind if dead else wanted.kind in {"record", "tombstone"}
    if not right_topic:
        findings.note("of the wrong kind", f"{input_id}: {stage or 'record'} instead of {wanted.kind}")
    if digest(message.key()) != wanted.key:
        findings.note("with another key", input_id)
    if dead and value is None and OMITTED in headers:
        if headers[OMITTED] != str(wanted.omissible_bytes).encode():
            findings.note("without a value of which it says another size", f"{input_id}: {headers[OMITTED]!r}")
    elif digest(value) != wanted.value:
        findings.note("with another value", f"{input_id}: {(value or b'')[:_SHOWN_BYTES]!r}")


def _check_seen(findings: Findings, ledger: Ledger, seen: Mapping[InputId, int]) -> None:
    """An output that became visible during the run must have been visible once, and must still be there."""
    for input_id, times in seen.items():
        if times != 1:
            findings.note("seen twice while it ran", input_id)
        place = ledger.find(input_id)
        ledger.seen.add(place)
        if not ledger.answers[place]:
            findings.note("seen while it ran, gone now", input_id)


def _check_inputs(findings: Findings, ledger: Ledger) -> None:
    """Each input must have exactly one output, which a reader saw during the run."""
    for number, incarnation in enumerate(ledger.incarnations):
        for partition, offset in incarnation.inputs:
            place = Place(number, partition, offset)
            answers = ledger.answers[place]
            if not answers and not incarnation.needs_answer(partition, offset):
                findings.gone += 1
                continue
            input_id = (incarnation.topic_id, partition, offset)
            if answers != 1:
                findings.note("doubled" if answers else "lost", input_id)
            if place not in ledger.seen:
                findings.note("not seen while it ran", input_id)


def _check_offsets(findings: Findings, reader: Reader, names: Topics) -> None:
    """The group must be at the end of the input, and no transaction may be open."""
    for partition, (committed, end) in reader.committed_and_ends(names.input).items():
        if committed != end:
            findings.note("partitions whose committed offset is not the end", f"{partition}: {committed} of {end}")
    for topic in (names.output, names.dead_letters):
        for partition, (stable, end) in reader.stable_and_ends(topic).items():
            if stable != end:
                findings.note("partitions with an open transaction", f"{topic} {partition}: {stable} of {end}")


OFFSETS_TOPIC = "__consumer_offsets"
_OFFSET_KEYS = {0, 1}
"""Key versions of offset commits; the others describe group members."""
_OFFSET = struct.Struct(">hq")
_TOPIC_ID = re.compile(rb"topic-id=([A-Za-z0-9+/_=-]+)")


@dataclass(frozen=True, slots=True)
class Commit:
    """One committed offset. `at`: its own offset in the offsets topic.

    `offset` is None for a deletion, `topic_id` if the metadata does not name the topic.
    """

    partition: int
    offset: int | None
    at: int
    topic_id: str | None = None


def commits_of(messages: Iterable[Message], group: str, topic: str) -> Iterator[Commit]:
    """The commits and deletions of one group in one topic, in log order."""
    for message in messages:
        value = message.value()
        partition = _partition(message.key(), group, topic)
        if partition is not None:
            offset = None if value is None else _OFFSET.unpack_from(value)[1]
            yield Commit(partition, offset, message.offset() or 0, None if value is None else _topic_id(value))


def falls(commits: Iterable[Commit]) -> Iterator[tuple[Commit, Commit]]:
    """Yield each commit that went back, with the one before it in its partition.

    After a deletion and for a new topic id, offsets start again; but then no commit may follow for an older topic.
    """
    last: dict[int, Commit] = {}
    topic_ids: dict[int, list[str]] = defaultdict(list)
    for commit in commits:
        before, known = last.get(commit.partition), topic_ids[commit.partition]
        last[commit.partition] = commit
        if commit.topic_id and commit.topic_id not in known:
            known.append(commit.topic_id)
            if len(known) > 1:
                continue
        older = commit.topic_id in known[:-1]
        if before is not None and (older or _is_lower(commit, before)):
            yield before, commit


def _is_lower(commit: Commit, before: Commit) -> bool:
    return commit.offset is not None and before.offset is not None and commit.offset < before.offset


def _topic_id(value: bytes) -> str | None:
    """The topic id in the commit's metadata, which is text and follows the offset in every version."""
    found = _TOPIC_ID.search(value, _OFFSET.size)
    return found[1].decode() if found else None


def _partition(key: bytes | str | None, group: str, topic: str) -> int | None:
    """The partition of a key; None if it belongs to another group or topic, or is no offset commit."""
    if not isinstance(key, bytes) or struct.unpack_from(">h", key)[0] not in _OFFSET_KEYS:
        return None
    wanted = b"".join(struct.pack(">h", len(text)) + text for text in (group.encode(), topic.encode()))
    if not key.startswith(wanted, 2):
        return None
    partition: int = struct.unpack_from(">i", key, 2 + len(wanted))[0]
    return partition
