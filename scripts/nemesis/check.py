"""After the run: every committed input is there exactly once, as what it must become, in order, and nothing else is.

Reads with clients of its own, past the proxy, and knows what must come out from `reference` alone.
"""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from nemesis.headers import STAGE, headers_of, source_of
from nemesis.history import OFFSETS_TOPIC, commits_of, falls
from nemesis.reference import expected

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from confluent_kafka import Message

    from nemesis.scene import Names

_TIMEOUT_S = 30.0
_SHOWN = 5
_SILENCE_S = 20.0
"""A client that delivers nothing for so long is replaced."""
_CLIENTS = 4
Place = tuple[int, int]
"""Partition and offset of an input."""


@dataclass(slots=True)
class Findings:
    """Counts, and the first few examples of what is wrong."""

    inputs: int = 0
    outputs: int = 0
    dead_letters: int = 0
    uncommitted: int = 0
    """Records of transactions that were rolled back: without any, no fault has met a transaction."""
    wrong: dict[str, list[str]] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)

    @property
    def good(self) -> bool:
        """Whether nothing is wrong."""
        return not self.counts

    def note(self, what: str, example: object) -> None:
        """One more thing that is wrong."""
        self.counts[what] += 1
        if len(self.wrong.setdefault(what, [])) < _SHOWN:
            self.wrong[what].append(str(example))


@dataclass(slots=True)
class _Input:
    key: bytes | None
    value: bytes | None
    answers: int = 0


def check(bootstrap_servers: str, names: Names, seen: Mapping[Place, int]) -> Findings:
    """Compare the topics; `seen` is what a reader saw during the run: how often an output of each input."""
    findings = Findings()
    reader = _Reader(bootstrap_servers, names.group)
    inputs = {
        (message.partition() or 0, message.offset() or 0): _Input(message.key(), message.value())
        for message in reader.records(names.input)
    }
    findings.inputs = len(inputs)
    for topic in (names.output, names.dead_letters):
        _check_outputs(findings, reader, topic, inputs, dead=topic == names.dead_letters)
        findings.uncommitted += reader.count(topic, "read_uncommitted") - reader.count(topic, "read_committed")
    for place, each in inputs.items():
        if each.answers != 1:
            findings.note("doubled" if each.answers else "lost", place)
    _check_offsets(findings, reader, names)
    for before, after in falls(commits_of(reader.records(OFFSETS_TOPIC), names.group, names.input)):
        findings.note("committed offsets that went back", f"{after} after {before}")
    _check_seen(findings, inputs, seen)
    return findings


def _check_outputs(
    findings: Findings, reader: _Reader, topic: str, inputs: Mapping[Place, _Input], *, dead: bool
) -> None:
    newest: dict[tuple[int, int], int] = {}
    for message in reader.records(topic):
        place = source_of(message)
        findings.outputs += not dead
        findings.dead_letters += dead
        given = inputs.get(place)
        if given is None:
            findings.note("invented", f"{topic} {message.partition()} {message.offset()} of {place}")
            continue
        given.answers += 1
        _check_content(findings, message, given, place, dead=dead)
        lane = (message.partition() or 0, place[0])
        if place[1] < newest.get(lane, -1):
            findings.note("out of order", f"{topic} {place} after {newest[lane]}")
        newest[lane] = place[1]


def _check_content(findings: Findings, message: Message, given: _Input, place: Place, *, dead: bool) -> None:
    wanted = expected(given.value)
    stage = headers_of(message).get(STAGE, b"").decode()
    right_place = stage == wanted.kind if dead else wanted.kind in {"record", "tombstone"}
    if not right_place:
        findings.note("of the wrong kind", f"{place}: {stage or 'record'} instead of {wanted.kind}")
    if message.key() != given.key:
        findings.note("with another key", place)
    if message.value() != wanted.value:
        findings.note("with another value", f"{place}: {message.value()!r} instead of {wanted.value!r}")


def _check_offsets(findings: Findings, reader: _Reader, names: Names) -> None:
    """The group is at the end, and no transaction is open anywhere."""
    for partition, (committed, end) in reader.committed_and_ends(names.input).items():
        if committed != end:
            findings.note("partitions whose committed offset is not the end", f"{partition}: {committed} of {end}")
    for topic in (names.output, names.dead_letters):
        for partition, (stable, end) in reader.stable_and_ends(topic).items():
            if stable != end:
                findings.note("partitions with an open transaction", f"{topic} {partition}: {stable} of {end}")


def _check_seen(findings: Findings, inputs: Mapping[Place, _Input], seen: Mapping[Place, int]) -> None:
    """What became visible during the run was visible once, and stays."""
    for place, times in seen.items():
        if times != 1:
            findings.note("seen twice while it ran", place)
        if place not in inputs or not inputs[place].answers:
            findings.note("seen while it ran, gone now", place)
    for place in inputs.keys() - seen.keys():
        findings.note("not seen while it ran", place)


class _Reader:
    """Reads whole topics."""

    def __init__(self, bootstrap_servers: str, group: str) -> None:
        self._common = {
            "bootstrap.servers": bootstrap_servers,
            "group.id": group,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 20,
            "log_level": 0,
        }

    def records(self, topic: str, isolation: str = "read_committed") -> Iterator[Message]:
        """From the beginning of all partitions to their ends, each partition in order. Raises TimeoutError."""
        with closing(Consumer(self._common)) as consumer:
            nexts = dict.fromkeys(self._partitions(consumer, topic), OFFSET_BEGINNING)
        for _ in range(_CLIENTS):
            yield from self._read_on(topic, nexts, isolation)
            if not nexts:
                return
        raise TimeoutError(f"{topic}: nothing more comes of {sorted(nexts)}, and they are not at their ends")

    def _read_on(self, topic: str, nexts: dict[int, int], isolation: str) -> Iterator[Message]:
        """As far as one client gets: one was seen to deliver nothing at all, on a busy machine. Ended ones leave `nexts`."""
        consumer = Consumer({**self._common, "isolation.level": isolation})
        try:
            consumer.assign([TopicPartition(topic, number, offset) for number, offset in nexts.items()])
            while nexts and (messages := consumer.consume(1_000, 0.2) or consumer.consume(1, _SILENCE_S)):
                for message in messages:
                    error, number = message.error(), message.partition() or 0
                    if error is None:
                        nexts[number] = (message.offset() or 0) + 1
                        yield message
                    elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001  the client's name
                        nexts.pop(number, None)
        finally:
            consumer.close()

    def count(self, topic: str, isolation: str) -> int:
        """How many records that makes."""
        return sum(1 for _ in self.records(topic, isolation))

    def committed_and_ends(self, topic: str) -> dict[int, tuple[int, int]]:
        """Of the group, and of the topic."""
        consumer = Consumer(self._common)
        try:
            asked = [TopicPartition(topic, number) for number in self._partitions(consumer, topic)]
            committed = consumer.committed(asked, timeout=_TIMEOUT_S)
            return {each.partition: (each.offset, self._end(consumer, each)) for each in committed}
        finally:
            consumer.close()

    def stable_and_ends(self, topic: str) -> dict[int, tuple[int, int]]:
        """The last stable offset, and the end."""
        stable = Consumer({**self._common, "isolation.level": "read_committed"})
        every = Consumer({**self._common, "isolation.level": "read_uncommitted"})
        try:
            asked = [TopicPartition(topic, number) for number in self._partitions(stable, topic)]
            return {each.partition: (self._end(stable, each), self._end(every, each)) for each in asked}
        finally:
            stable.close()
            every.close()

    def _end(self, consumer: Consumer, partition: TopicPartition) -> int:
        bounds = consumer.get_watermark_offsets(
            TopicPartition(partition.topic, partition.partition), timeout=_TIMEOUT_S
        )
        assert bounds is not None, "it raises when it has no answer"
        return bounds[1]

    def _partitions(self, consumer: Consumer, topic: str) -> list[int]:
        return list(consumer.list_topics(topic, timeout=_TIMEOUT_S).topics[topic].partitions)
