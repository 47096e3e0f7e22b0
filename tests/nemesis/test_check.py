"""Negative controls: each wrong that can be done to the outputs is found, by name, and nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from support.topics import Topics

from nemesis.articles import Articles
from nemesis.check import Findings, Place, check
from nemesis.reference import expected
from nemesis.scene import Names

pytestmark = pytest.mark.broker

COUNT = 120
Headers = list[tuple[str, str | bytes | None]]


@dataclass(frozen=True, slots=True)
class Answer:
    """One output: of which input, under which key, with which value, where."""

    place: Place
    key: bytes
    value: bytes | None
    stage: str | None
    partition: int

    @property
    def headers(self) -> Headers:
        """As the schemas say, as far as the check looks."""
        prefix = "enricher" if self.stage is None else "enricher.dlq"
        source: Headers = [
            (f"{prefix}.source.partition", str(self.place[0])),
            (f"{prefix}.source.offset", str(self.place[1])),
        ]
        return source if self.stage is None else [*source, ("enricher.dlq.stage", self.stage)]


def right_answers(topics: Topics) -> list[Answer]:
    """Publish inputs, all to partition 0, and give the outputs that a faultless worker would write."""
    producer = Producer({"bootstrap.servers": topics.bootstrap_servers, "enable.idempotence": True})
    articles, answers = Articles("check"), []
    for number in range(COUNT):
        article = articles.input(number)
        producer.produce(topics.input, article.value, article.key, partition=0)
        wanted = expected(article.value)
        stage = wanted.kind if wanted.kind in {"decode", "inference"} else None
        answers.append(Answer((0, number), article.key, wanted.value, stage, 0))
    assert producer.flush(20) == 0
    return answers


def verdict(topics: Topics, answers: Sequence[Answer], *, committed: int = COUNT) -> Findings:
    """Write the outputs, commit the offset, check."""
    producer = Producer({"bootstrap.servers": topics.bootstrap_servers, "enable.idempotence": True})
    for each in answers:
        topic = topics.output if each.stage is None else topics.dead_letters
        producer.produce(topic, each.value, each.key, headers=each.headers, partition=each.partition)
    assert producer.flush(20) == 0
    consumer = Consumer({"bootstrap.servers": topics.bootstrap_servers, "group.id": topics.group})
    offsets = [TopicPartition(topics.input, n, 0 if n else committed) for n in range(4)]
    consumer.commit(offsets=offsets, asynchronous=False)
    consumer.close()
    names = Names(topics.input, topics.output, topics.dead_letters, topics.group)
    return check(topics.bootstrap_servers, names, Counter(each.place for each in answers))


def test_right_answers_are_found_right(direct: Topics) -> None:
    """Without this the controls below would prove nothing."""
    findings = verdict(direct, right_answers(direct))
    assert {} == findings.counts
    assert findings.inputs == findings.outputs + findings.dead_letters == COUNT


def test_lost_output_is_found(direct: Topics) -> None:
    """One input has no answer."""
    answers = right_answers(direct)
    assert {"lost": 1, "not seen while it ran": 1} == verdict(direct, answers[:50] + answers[51:]).counts


def test_doubled_output_is_found(direct: Topics) -> None:
    """One input has two answers, which a reader saw."""
    answers = right_answers(direct)
    assert {"doubled": 1, "seen twice while it ran": 1} == verdict(direct, [*answers, answers[-1]]).counts


def test_invented_output_is_found(direct: Topics) -> None:
    """An output names an input that there is not."""
    answers = right_answers(direct)
    invented = replace(answers[0], place=(0, COUNT + 5))
    counts = verdict(direct, [*answers, invented]).counts
    assert {"invented": 1, "seen while it ran, gone now": 1} == counts


def test_wrong_order_is_found(direct: Topics) -> None:
    """Two neighbours have changed places."""
    answers = right_answers(direct)
    assert answers[1].stage == answers[2].stage
    answers[1:3] = answers[2], answers[1]
    assert {"out of order": 1} == verdict(direct, answers).counts


def test_wrong_value_is_found(direct: Topics) -> None:
    """One byte of a record is another."""
    answers = right_answers(direct)
    value = answers[1].value or b""
    answers[1] = replace(answers[1], value=value.replace(b"0.5", b"0.6", 1))
    assert {"with another value": 1} == verdict(direct, answers).counts


def test_wrong_key_is_found(direct: Topics) -> None:
    """One output has the key of another."""
    answers = right_answers(direct)
    answers[1] = replace(answers[1], key=answers[2].key)
    assert {"with another key": 1} == verdict(direct, answers).counts


def test_dead_letter_of_a_good_article_is_found(direct: Topics) -> None:
    """It has an answer, once, and the wrong one."""
    answers = right_answers(direct)
    answers[1] = replace(answers[1], stage="decode")
    assert {"of the wrong kind": 1} == verdict(direct, answers).counts


def test_offset_behind_the_end_is_found(direct: Topics) -> None:
    """All is published, and the group would begin again."""
    findings = verdict(direct, right_answers(direct), committed=COUNT - 1)
    assert {"partitions whose committed offset is not the end": 1} == findings.counts


def test_offset_that_went_back_is_found(direct: Topics) -> None:
    """Even where it is right in the end: the broker's log has every offset that was ever committed."""
    answers = right_answers(direct)
    consumer = Consumer({"bootstrap.servers": direct.bootstrap_servers, "group.id": direct.group})
    for offset in (COUNT, COUNT - 2):
        consumer.commit(offsets=[TopicPartition(direct.input, 0, offset)], asynchronous=False)
    consumer.close()
    assert {"committed offsets that went back": 1} == verdict(direct, answers).counts


def test_open_transaction_is_found(direct: Topics) -> None:
    """A transaction that nobody ends holds back whoever reads committed records."""
    answers = right_answers(direct)
    producer = Producer({"bootstrap.servers": direct.bootstrap_servers, "transactional.id": direct.output})
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce(direct.output, b"open", partition=3)
    assert producer.flush(20) == 0
    assert {"partitions with an open transaction": 1} == verdict(direct, answers).counts
    producer.abort_transaction(20)
