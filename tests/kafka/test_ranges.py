"""Readers outside a group: messages fetched before a seek, and what brokers answer at the wrong moment."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import chain, repeat
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException, TopicCollection, TopicPartition, Uuid
from kafka.clients import config_for
from kafka.quiet import TOPICS

from enricher.errors import BrokerError, TransactionTrouble
from enricher.operate.inspector import Inspector
from enricher.worker.kafka import ranges
from enricher.worker.kafka.errors import Complaint
from enricher.worker.kafka.partition_reader import PartitionReader
from enricher.worker.kafka.ranges import RangeReader

BOMB = KafkaError(KafkaError._BAD_COMPRESSION, "Decompression (codec 0x4) of message at 2 of 3088 bytes failed")


@dataclass(frozen=True, slots=True)
class Told:
    """A message of partition 0."""

    at: int
    why: KafkaError | None = None

    def error(self) -> KafkaError | None:
        """The error, if it is one."""
        return self.why

    def partition(self) -> int:
        """Always 0."""
        return 0

    def offset(self) -> int:
        """Its offset."""
        return self.at


class Hurried:
    """A client that met a batch of one record at offset 2 several times before its messages were consumed."""

    def __init__(self) -> None:
        self._ready = self._from(0)

    def _from(self, offset: int) -> list[Told]:
        bombs = [*map(Told, range(offset, 2)), *[Told(2, BOMB)] * 3] if offset <= 2 else []
        return [*bombs, *map(Told, range(max(offset, 3), 6))]

    def consume(self, most: int, _timeout_s: float) -> list[Told]:
        """The next messages that are ready."""
        taken, self._ready = self._ready[:most], self._ready[most:]
        return taken

    def seek(self, place: TopicPartition) -> None:
        """Drops what was ready."""
        self._ready = self._from(place.offset)

    def __getattr__(self, _name: str) -> Any:  # noqa: ANN401  what is not answered here does nothing
        return lambda *_: None


def one_record(_finder: object, inside: int) -> int:
    """The batch holds one record."""
    return inside + 1


def nobody_says(_finder: object, inside: int) -> int:
    """Raise the error of the worker's own recovery, which a command does not have."""
    raise TransactionTrouble(f"no answer about {inside}")


@contextmanager
def reader_of(monkeypatch: pytest.MonkeyPatch, client: Hurried | None = None) -> Iterator[RangeReader]:
    """A reader with this client."""
    with closing(RangeReader(config_for(TOPICS), committed_only=True, progress=lambda *_: None)) as reader:
        if client:
            monkeypatch.setattr(reader._reader, "consumer", client)
        yield reader


class Failing(Hurried):
    """A client whose assignment fails."""

    def assign(self, _places: list[TopicPartition]) -> None:
        """As after a fatal error of the client."""
        raise KafkaException(KafkaError(KafkaError._FATAL, "the client is broken"))


def test_a_batch_that_was_met_several_times_is_passed_over_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client tries it twice a second, and the caller may take longer over one record."""
    monkeypatch.setattr(ranges._BatchEndFinder, "end", one_record)
    passed: list[tuple[int, range]] = []
    with reader_of(monkeypatch, Hurried()) as reader:
        read = [
            each.offset() for each in reader.read("articles", {0: (0, 6)}, "reading", lambda *at: passed.append(at))
        ]
    assert (read, passed) == ([0, 1, 3, 4, 5], [(0, range(2, 3))])


@pytest.mark.parametrize(("client", "finder"), [(Hurried, nobody_says), (Failing, one_record)])
def test_errors_of_the_client_and_of_silent_brokers_are_broker_errors(
    monkeypatch: pytest.MonkeyPatch, client: type[Hurried], finder: Callable[[object, int], int]
) -> None:
    """A command ends with exit code 4 and a reason, not with a traceback."""
    monkeypatch.setattr(ranges._BatchEndFinder, "end", finder)
    with reader_of(monkeypatch, client()) as reader, pytest.raises(BrokerError):
        list(reader.read("articles", {0: (0, 6)}, "reading", lambda *_: None))


class Deaf(Hurried):
    """A client that delivers one record and then nothing more, as one that has lost its partition's leader."""

    def consume(self, most: int, _timeout_s: float) -> list[Told]:
        """Offset 0 once."""
        taken, self._ready = [each for each in self._ready[:most] if each.at == 0], []
        return taken


def test_a_client_that_falls_silent_is_replaced_by_one_that_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """No record comes twice. If new clients hear nothing either, that is an error in the end."""
    monkeypatch.setattr(ranges, "_SILENCE_S", 0.1)

    def made(*clients: Hurried) -> Iterator[PartitionReader]:
        for client in clients:
            reader = PartitionReader({"group.id": "group"}, Complaint())
            monkeypatch.setattr(reader, "consumer", client)
            yield reader

    connections = made(Deaf(), OnlyBehind(1), Deaf(), *(OnlyBehind(9) for _ in range(9)))
    monkeypatch.setattr(ranges, "lone_reader", lambda *_: next(connections))
    with reader_of(monkeypatch) as reader:
        assert [0, 1, 2] == [each.offset() for each in reader.read("articles", {0: (0, 3)}, "reading")]
    with reader_of(monkeypatch) as reader:
        with pytest.raises(BrokerError, match="nothing came"):
            list(reader.read("articles", {0: (0, 3)}, "reading"))
        assert {0: 3} == reader.left


class OnlyBehind(Hurried):
    """A client that delivers the records from an offset on, up to 5."""

    def __init__(self, offset: int) -> None:
        self._ready = list(map(Told, range(offset, 6)))


class Administrator:
    """Answers like the client: for a partition without a leader it returns an invalid offset, and no error."""

    def __init__(self, offsets: Iterator[int]) -> None:
        self._offsets = offsets

    def list_offsets(
        self, wanted: Mapping[TopicPartition, object], **_named: object
    ) -> dict[TopicPartition, Future[SimpleNamespace]]:
        """The next offset, for every partition."""
        answer = Future[SimpleNamespace]()
        answer.set_result(SimpleNamespace(offset=next(self._offsets)))
        return dict.fromkeys(wanted, answer)

    def describe_topics(self, wanted: TopicCollection, **_named: object) -> dict[str, Future[SimpleNamespace]]:
        """The id that brokers without topic ids answer: 16 zero bytes."""
        answer = Future[SimpleNamespace]()
        answer.set_result(SimpleNamespace(topic_id=Uuid(0, 0)))
        return dict.fromkeys(wanted.topic_names, answer)

    def poll(self, _timeout_s: float) -> int:
        """Nothing to serve."""
        return 0


@contextmanager
def inspector_of(monkeypatch: pytest.MonkeyPatch, *offsets: int, timeout_s: float) -> Iterator[Inspector]:
    """A topic with one partition whose end is asked for; the last answer is repeated."""
    with closing(Inspector(config_for(TOPICS, request_timeout_s=timeout_s))) as inspector:
        monkeypatch.setattr(inspector, "partitions", lambda _topic: [0])
        monkeypatch.setattr(inspector, "_admin", Administrator(chain(offsets, repeat(offsets[-1]))))
        yield inspector


def test_a_question_is_repeated_until_there_is_a_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    """An election takes a moment."""
    with inspector_of(monkeypatch, OFFSET_INVALID, OFFSET_INVALID, 7, timeout_s=60) as inspector:
        assert {0: 7} == inspector.ends("news", committed_only=True)


def test_a_question_is_repeated_while_no_partition_has_a_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    """As while the only broker starts again: the client itself answers, with an error that it does not call temporary."""

    class Starting(Administrator):
        def list_offsets(self, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401  the client's own signature
            if next(answers):
                return super().list_offsets(*arguments, **options)
            raise KafkaException(KafkaError(KafkaError._NOENT, "Failed to query partition leaders: No leaders found"))

    answers = iter([False, False, True])
    with inspector_of(monkeypatch, 7, timeout_s=60) as inspector:
        monkeypatch.setattr(inspector, "_admin", Starting(repeat(7)))
        assert {0: 7} == inspector.ends("news", committed_only=True)


def test_a_partition_without_a_leader_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Taken for empty, it would have lost its records, invented them, or have no backlog and lose its workers."""
    with (
        inspector_of(monkeypatch, OFFSET_INVALID, timeout_s=0.1) as inspector,
        pytest.raises(BrokerError, match=r"LEADER_NOT_AVAILABLE.*no answer from partitions 0"),
    ):
        inspector.ends("news", committed_only=True)


def test_an_answer_that_the_client_never_gives_is_a_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client does not always keep its own bound; nothing may wait for it for ever, or end with a traceback."""
    administrator = Administrator(repeat(0))
    monkeypatch.setattr(administrator, "list_offsets", lambda wanted, **_: {tp: Future() for tp in wanted})
    with inspector_of(monkeypatch, 0, timeout_s=0.1) as inspector:
        monkeypatch.setattr(inspector, "_admin", administrator)
        with pytest.raises(BrokerError, match="no answer within"):
            inspector.ends("news", committed_only=True)


def test_a_broker_without_topic_ids_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The id is all zeros, for every topic: taken for an id, it would make all topics one."""
    with (
        inspector_of(monkeypatch, 0, timeout_s=60) as inspector,
        pytest.raises(BrokerError, match=r"no ids: Apache Kafka 3\.7 or newer"),
    ):
        inspector.topic_id("news")
