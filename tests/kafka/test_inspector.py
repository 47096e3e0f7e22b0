"""What only some brokers answer, or only at the wrong moment: no leader, so no offset, and no topic id."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import closing, contextmanager
from itertools import chain, repeat
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException, TopicCollection, TopicPartition, Uuid
from kafka.clients import config_for
from support.topics import Topics

from enricher.errors import BrokerError
from enricher.operate.inspector import Inspector


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


TOPICS = Topics("localhost:9092", "news", "news.entities", "news.dead-letters", "enricher", {})


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


def test_a_deadline_bounds_several_questions_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """A passed deadline leaves one attempt, however long the request timeout is."""
    with (
        inspector_of(monkeypatch, OFFSET_INVALID, timeout_s=60) as inspector,
        pytest.raises(BrokerError, match="no answer from partitions 0"),
        inspector.within(0.0),
    ):
        inspector.ends("news", [0], committed_only=True)


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
