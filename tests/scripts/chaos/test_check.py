"""Negative controls: each violation is found, by name, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest
from kafka.harness import transaction
from support import operating
from support.doctored import COUNT, publish, right_answers, verdict
from support.patience import PATIENCE_S
from support.topics import Topics

from tools.chaos.workload import Input
from tools.reading import OMITTED, InputId

pytestmark = pytest.mark.broker


def test_right_answers_are_found_right(topics: Topics) -> None:
    """Correct outputs pass; otherwise the controls below would prove nothing."""
    findings = verdict(topics, right_answers(topics))
    assert {} == findings.counts
    assert findings.inputs == findings.outputs + findings.dead_letters == COUNT


def test_lost_output_is_found(topics: Topics) -> None:
    """One input has no output."""
    answers = right_answers(topics)
    assert {"lost": 1, "not seen while it ran": 1} == verdict(topics, answers[:50] + answers[51:]).counts


def test_doubled_output_is_found(topics: Topics) -> None:
    """One input has two outputs, which a reader saw."""
    answers = right_answers(topics)
    assert {"doubled": 1, "seen twice while it ran": 1} == verdict(topics, [*answers, answers[-1]]).counts


def test_invented_output_is_found(topics: Topics) -> None:
    """An output names an input that does not exist."""
    answers = right_answers(topics)
    invented = replace(answers[0], input_id=InputId(None, 0, COUNT + 5))
    counts = verdict(topics, [*answers, invented]).counts
    assert {"invented": 1, "seen while it ran, gone now": 1} == counts


def test_wrong_order_is_found(topics: Topics) -> None:
    """Two neighbouring outputs are swapped."""
    answers = right_answers(topics)
    assert answers[1].stage == answers[2].stage
    answers[1:3] = answers[2], answers[1]
    assert {"out of order": 1} == verdict(topics, answers).counts


def test_wrong_value_is_found(topics: Topics) -> None:
    """One byte of a record differs."""
    answers = right_answers(topics)
    value = answers[1].value or b""
    answers[1] = replace(answers[1], value=value.replace(b"0.5", b"0.6", 1))
    assert {"with another value": 1} == verdict(topics, answers).counts


def test_wrong_key_is_found(topics: Topics) -> None:
    """One output has the key of another."""
    answers = right_answers(topics)
    answers[1] = replace(answers[1], key=answers[2].key)
    assert {"with another key": 1} == verdict(topics, answers).counts


def test_dead_letter_of_a_good_article_is_found(topics: Topics) -> None:
    """The article has one output, of the wrong kind."""
    answers = right_answers(topics)
    answers[1] = replace(answers[1], stage="decode")
    assert {"of the wrong kind": 1} == verdict(topics, answers).counts


def test_output_in_another_partition_is_found(topics: Topics) -> None:
    """One output is in a partition of other inputs, where its key is out of order for a reader."""
    answers = right_answers(topics)
    answers[1] = replace(answers[1], partition=2)
    assert {"in another partition than its input": 1} == verdict(topics, answers).counts


LARGE = Input(b"k", b"\xff" * 150_000)
OMITTING = ((OMITTED, "150000"),)


def test_dead_letter_without_a_large_value_is_right(topics: Topics) -> None:
    """If the topic may refuse the value, the letter may omit it and name its size."""
    (answer,) = publish(topics, [LARGE])
    assert {} == verdict(topics, [replace(answer, value=None, more=OMITTING)], committed=1).counts


def test_dead_letter_without_a_small_value_is_found(topics: Topics) -> None:
    """A small value may not be omitted, since every topic accepts it."""
    (answer,) = publish(topics, [Input(b"k", b"{")])
    findings = verdict(topics, [replace(answer, value=None, more=((OMITTED, "1"),))], committed=1)
    assert {"without a value of which it says another size": 1} == findings.counts


def test_dead_letter_that_says_a_wrong_size_is_found(topics: Topics) -> None:
    """The size of an omitted value must be right."""
    (answer,) = publish(topics, [LARGE])
    findings = verdict(topics, [replace(answer, value=None, more=((OMITTED, "150001"),))], committed=1)
    assert {"without a value of which it says another size": 1} == findings.counts


def test_offset_behind_the_end_is_found(topics: Topics) -> None:
    """All is published, but the group would read the last input again."""
    findings = verdict(topics, right_answers(topics), committed=COUNT - 1)
    assert {"partitions whose committed offset is not the end": 1} == findings.counts


def test_offset_that_went_back_is_found(topics: Topics) -> None:
    """An offset that went back is found even if it is right in the end, because the broker's log has every commit."""
    answers = right_answers(topics)
    for offset in (COUNT, COUNT - 2):
        operating.commit(topics.bootstrap_servers, topics.group, topics.input, {0: offset})
    assert {"committed offsets that went back": 1} == verdict(topics, answers).counts


def test_open_transaction_is_found(topics: Topics) -> None:
    """An open transaction blocks read_committed consumers."""
    answers = right_answers(topics)
    with transaction(topics.bootstrap_servers, topics.output, commit=False) as producer:
        producer.produce(topics.output, b"open", partition=3)
        assert producer.flush(PATIENCE_S) == 0
        assert {"partitions with an open transaction": 1} == verdict(topics, answers).counts
