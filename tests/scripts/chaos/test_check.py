"""Negative controls: each violation is found, by name, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from kafka.harness import transaction
from support import operating
from support.doctored import COUNT, Answer, publish, right_answers, verdict
from support.patience import PATIENCE_S
from support.topics import Topics

from tools.chaos.workload import Input
from tools.reading import OMITTED, InputId

pytestmark = pytest.mark.broker


Answers = list[Answer]


def swapped(answers: Answers) -> Answers:
    """Two neighbouring outputs of one topic change places."""
    assert answers[1].stage == answers[2].stage
    return [answers[0], answers[2], answers[1], *answers[3:]]


def second(**changes: Any) -> Callable[[Answers], Answers]:  # noqa: ANN401  as `replace` takes
    """The second output differs in these fields."""
    return lambda answers: [answers[0], replace(answers[1], **changes), *answers[2:]]


FLAWS: dict[str, tuple[Callable[[Answers], Answers], dict[str, int]]] = {
    "nothing": (lambda answers: answers, {}),
    "lost": (lambda answers: [*answers[:50], *answers[51:]], {"lost": 1, "not seen while it ran": 1}),
    "doubled": (lambda answers: [*answers, answers[-1]], {"doubled": 1, "seen twice while it ran": 1}),
    "of no input": (
        lambda answers: [*answers, replace(answers[0], input_id=InputId(None, 0, COUNT + 5))],
        {"invented": 1, "seen while it ran, gone now": 1},
    ),
    "swapped": (swapped, {"out of order": 1}),
    "another value": (
        lambda answers: second(value=(answers[1].value or b"").replace(b"0.5", b"0.6", 1))(answers),
        {"with another value": 1},
    ),
    "another key": (lambda answers: second(key=answers[2].key)(answers), {"with another key": 1}),
    "dead letter of a good article": (second(stage="decode"), {"of the wrong kind": 1}),
    "in a partition of other inputs": (second(partition=2), {"in another partition than its input": 1}),
}
"""What is done to right answers, and what the check finds then."""


@pytest.mark.parametrize("flaw", FLAWS)
def test_each_flaw_is_found_by_name_and_nothing_else(topics: Topics, flaw: str) -> None:
    """Without one nothing is found, otherwise the others would prove nothing."""
    doctored, found = FLAWS[flaw]
    findings = verdict(topics, doctored(right_answers(topics)))
    assert found == findings.counts
    assert findings.inputs == COUNT


LARGE, SMALL = Input(b"k", b"\xff" * 150_000), Input(b"k", b"{")


@pytest.mark.parametrize(
    ("given", "said", "wrong"), [(LARGE, 150_000, False), (LARGE, 150_001, True), (SMALL, 1, True)]
)
def test_only_a_large_value_may_be_omitted_with_its_size(
    topics: Topics, given: Input, said: int, *, wrong: bool
) -> None:
    """A topic may refuse a large value, and every topic accepts a small one."""
    (answer,) = publish(topics, [given])
    omitting = replace(answer, value=None, more=((OMITTED, str(said)),))
    counts = verdict(topics, [omitting], committed=1).counts
    assert ({"without a value of which it says another size": 1} if wrong else {}) == counts


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
