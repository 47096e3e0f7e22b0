"""Negative controls: each violation is found, by name, and nothing else; also in a topic that was deleted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from kafka.harness import transaction
from support import operating
from support.doctored import COUNT, Answer, commit, names_of, right_answers, verdict
from support.patience import PATIENCE_S
from support.topics import Topics

from tools.chaos.scene import TopicKeeper
from tools.reading import InputId

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
        lambda answers: [*answers, replace(answers[0], input_id=InputId(answers[0].input_id.topic_id, 0, COUNT + 5))],
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


DONE = 80
"""How many inputs of the first topic the group had committed when it was deleted."""


@dataclass(frozen=True, slots=True)
class Twice:
    """Two topics of one name in succession, and the correct outputs for all inputs of both."""

    topics: Topics
    keeper: TopicKeeper
    old: Sequence[Answer]
    new: Sequence[Answer]


@pytest.fixture
def twice(topics: Topics) -> Twice:
    """A topic with partly committed inputs, deleted, recreated, and filled with others."""
    keeper = TopicKeeper(names_of(topics), 4, replicas=1)
    old = right_answers(topics, "old")
    commit(topics, DONE)
    keeper.remember_the_rest(keeper.remember_input())
    keeper.delete_input()
    keeper.create_input()
    new = right_answers(topics, "new")
    assert old[0].input_id.topic_id != new[0].input_id.topic_id
    return Twice(topics, keeper, old, new)


def of_topic(topic_id: str, answer: Answer) -> Answer:
    """The output of the same offset of another topic."""
    return replace(answer, input_id=InputId(topic_id, *answer.input_id[1:]))


Outputs = tuple[Sequence[Answer], Sequence[Answer]]
FLAWS_OF_TWO: dict[str, tuple[Callable[[Sequence[Answer], Sequence[Answer]], Outputs], dict[str, int]]] = {
    "nothing": (lambda old, new: (old, new), {}),
    "uncommitted inputs of the old topic without outputs": (lambda old, new: (old[:DONE], new), {}),
    "a committed input of the old topic is lost": (
        lambda old, new: ([*old[:5], *old[6:DONE]], new),
        {"lost": 1, "not seen while it ran": 1},
    ),
    "a reader continues at the old offset": (
        lambda old, new: (old, new[DONE:]),
        {"lost": DONE, "not seen while it ran": DONE},
    ),
    "of a topic that never was": (
        lambda old, new: (old, [*new, of_topic("no-such-id", new[3])]),
        {"invented": 1, "seen while it ran, gone now": 1},
    ),
    "a worker still holds inputs of the old topic": (
        lambda old, new: ([old[0], *old[2:]], [*new, old[1]]),
        {"out of order": 1},
    ),
    "without the id of its topic": (
        lambda old, new: (old, [of_topic("", new[0]), *new[1:]]),
        {"invented": 1, "lost": 1, "not seen while it ran": 1, "seen while it ran, gone now": 1},
    ),
}
"""What is done to the right outputs of both topics, and what the check finds then."""


@pytest.mark.parametrize("flaw", FLAWS_OF_TWO)
def test_each_flaw_is_found_by_name_in_the_topic_that_has_it(twice: Twice, flaw: str) -> None:
    """The same offset in two topics is no double; what nobody had committed is gone with its topic, not lost."""
    doctored, found = FLAWS_OF_TWO[flaw]
    old, new = doctored(twice.old, twice.new)
    assert (twice.old[1].stage, twice.old[-1].stage) == (None, None), "the order is that of one topic"
    findings = verdict(twice.topics, [*old, *new], past=twice.keeper.past)
    assert found == findings.counts
    assert 2 * COUNT == findings.inputs
    assert findings.gone == (COUNT - DONE if len(old) <= DONE else 0)
