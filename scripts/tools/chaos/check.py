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
from hashlib import blake2b
from typing import NamedTuple

from confluent_kafka import Message, TopicCollection
from confluent_kafka.admin import AdminClient

from tools.chaos.reference import Kind, expected
from tools.reading import STAGE, InputId, Reader, headers_of, source_of
from tools.topics import Topics

_SHOWN = 5
_SHOWN_BYTES = 300
_ASK_S = 30.0


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
    inputs = {each.topic_id: each for each in [*past, present]}
    findings.inputs = sum(len(each.inputs) for each in inputs.values())
    answers: Counter[InputId] = Counter()
    findings.outputs = _check_outputs(findings, reader, names.output, inputs, answers, dead=False)
    findings.dead_letters = _check_outputs(findings, reader, names.dead_letters, inputs, answers, dead=True)
    _check_seen(findings, answers, seen)
    _check_inputs(findings, inputs, answers, seen)
    _check_offsets(findings, reader, names)
    for before, after in falls(commits_of(reader.records(OFFSETS_TOPIC), names.group, names.input)):
        findings.note("committed offsets that went back", f"{after} after {before}")
    return findings


def _check_outputs(
    findings: Findings, reader: Reader, topic: str, inputs: Inputs, answers: Counter[InputId], *, dead: bool
) -> int:
    """Compare each output with its input, and count it as an answer; returns how many outputs there are."""
    ages = {topic_id: age for age, topic_id in enumerate(inputs)}
    newest: dict[tuple[int, int], tuple[int, int]] = {}
    count = 0
    for count, message in enumerate(reader.records(topic), start=1):  # noqa: B007  it is returned
        input_id = source_of(message)
        topic_id, partition, offset = input_id
        wanted = inputs[topic_id].inputs.get((partition, offset)) if topic_id in inputs else None
        if wanted is None:
            findings.note("invented", f"{topic} {message.partition()} {message.offset()} of {input_id}")
            continue
        answers[input_id] += 1
        _check_content(findings, message, wanted, input_id, dead=dead)
        if message.partition() != partition:
            findings.note("in another partition than its input", f"{topic} {message.partition()} of {input_id}")
        stream, at = (message.partition() or 0, partition), (ages[topic_id], offset)
        if at < newest.get(stream, (0, -1)):
            findings.note("out of order", f"{topic} {input_id} after {newest[stream]}")
        newest[stream] = at
    findings.uncommitted += reader.count(topic, "read_uncommitted") - count
    return count


def _check_content(findings: Findings, message: Message, wanted: Wanted, input_id: InputId, *, dead: bool) -> None:
    stage = headers_of(message).get(STAGE, b"").decode()
    right_topic = stage == wanted.kind if dead else wanted.kind in {"record", "tombstone"}
    if not right_topic:
        findings.note("of the wrong kind", f"{input_id}: {stage or 'record'} instead of {wanted.kind}")
    if _digest(message.key()) != wanted.key:
        findings.note("with another key", input_id)
    if _digest(message.value()) != wanted.value:
        findings.note("with another value", f"{input_id}: {(message.value() or b'')[:_SHOWN_BYTES]!r}")


def _check_seen(findings: Findings, answers: Counter[InputId], seen: Mapping[InputId, int]) -> None:
    """An output that became visible during the run must have been visible once, and must still be there."""
    for input_id, times in seen.items():
        if times != 1:
            findings.note("seen twice while it ran", input_id)
        if not answers[input_id]:
            findings.note("seen while it ran, gone now", input_id)


def _check_inputs(findings: Findings, inputs: Inputs, answers: Counter[InputId], seen: Mapping[InputId, int]) -> None:
    """Each input must have exactly one output, which a reader saw during the run."""
    for topic_id, incarnation in inputs.items():
        for partition, offset in incarnation.inputs:
            input_id = InputId(topic_id, partition, offset)
            if not answers[input_id] and not incarnation.needs_answer(partition, offset):
                findings.gone += 1
                continue
            if answers[input_id] != 1:
                findings.note("doubled" if answers[input_id] else "lost", input_id)
            if input_id not in seen:
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


class Wanted(NamedTuple):
    """The expected output of an input: how it ends, and the digests of its key and value."""

    kind: Kind
    key: int
    value: int


class Incarnation:
    """The inputs of one topic, by partition and offset. Of some hundred thousand in half an hour only digests are kept.

    `committed`: for a deleted topic, the offsets that the group had committed by then, by partition. Inputs below them must
    have an output; the rest may have been deleted before any worker read them. None for the present topic.
    """

    def __init__(self, topic_id: str) -> None:
        self.topic_id = topic_id
        self.committed: Mapping[int, int] | None = None
        self.inputs: dict[tuple[int, int], Wanted] = {}
        self.nexts: dict[int, int] = {}
        """The offset after the last input, by partition."""

    def add(self, messages: Iterable[Message]) -> None:
        """Add inputs; each partition's must come in offset order."""
        for message in messages:
            partition, offset = message.partition() or 0, message.offset() or 0
            assert offset >= self.nexts.get(partition, 0), "offsets ascend"
            wanted = expected(message.value())
            self.inputs[partition, offset] = Wanted(wanted.kind, _digest(message.key()), _digest(wanted.value))
            self.nexts[partition] = offset + 1

    def needs_answer(self, partition: int, offset: int) -> bool:
        """Whether the input counts as lost if it has no output."""
        return self.committed is None or offset < self.committed.get(partition, 0)


Inputs = Mapping[str, Incarnation]
"""The topics that had the input's name, by id, oldest first."""


def topic_id_of(bootstrap_servers: str, topic: str) -> str:
    """The id of the topic that has this name now, in the text form that the worker writes into headers."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    description = admin.describe_topics(TopicCollection([topic]), request_timeout=_ASK_S)[topic].result(_ASK_S)
    # Kafka's tools print URL-safe base64, and so does the worker.
    return str(description.topic_id).replace("+", "-").replace("/", "_")


def _digest(part: bytes | str | None) -> int:
    """A 64-bit digest of a key or a value; 0 for None."""
    if part is None:
        return 0
    data = part.encode() if isinstance(part, str) else part
    return int.from_bytes(blake2b(data, digest_size=8).digest()) or 1


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
