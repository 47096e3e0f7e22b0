"""A recreated input topic: the check tells its inputs from the old topic's by the topic id."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pytest
from support.doctored import COUNT, Answer, commit, names_of, right_answers, verdict
from support.topics import Topics

from tools.chaos.check import Findings
from tools.chaos.incarnations import topic_id_of
from tools.chaos.proxy import Proxy
from tools.chaos.topics import TopicKeeper
from tools.kafka import Cluster
from tools.reading import InputId

pytestmark = pytest.mark.broker

DONE = 80
"""How many inputs of the first topic the group had committed when it was deleted."""


@dataclass(frozen=True, slots=True)
class Twice:
    """Two topics of one name in succession, and the correct outputs for all inputs of both."""

    topics: Topics
    keeper: TopicKeeper
    old: Sequence[Answer]
    new: Sequence[Answer]

    def verdict(self, old: Sequence[Answer], new: Sequence[Answer]) -> Findings:
        """The check's findings with these outputs."""
        return verdict(self.topics, [*old, *new], past=self.keeper.past)


@pytest.fixture
def twice(topics: Topics, broker_and_proxy: tuple[Proxy, Cluster]) -> Twice:
    """A topic with partly committed inputs, deleted, recreated, and filled with others."""
    servers = broker_and_proxy[1].bootstrap_servers
    keeper = TopicKeeper(names_of(topics), 4, replicas=1)
    old = right_answers(topics, "old", topic_id_of(servers, topics.input))
    commit(topics, DONE)
    keeper.remember_the_rest(keeper.remember_input())
    keeper.delete_input()
    keeper.create_input()
    new = right_answers(topics, "new", topic_id_of(servers, topics.input))
    assert old[0].input_id.topic_id != new[0].input_id.topic_id
    return Twice(topics, keeper, old, new)


def invented(new: Sequence[Answer]) -> Answer:
    """An output of an offset that exists in both topics, and of a topic id that exists in none."""
    return replace(new[3], input_id=InputId("no-such-id", 0, 3))


def nameless(answer: Answer) -> Answer:
    """The output without the id of its topic, which with two topics would be ambiguous."""
    return replace(answer, input_id=InputId(None, answer.input_id.partition, answer.input_id.offset))


Outputs = tuple[Sequence[Answer], Sequence[Answer]]
FLAWS: dict[str, tuple[Callable[[Sequence[Answer], Sequence[Answer]], Outputs], dict[str, int]]] = {
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
    "a second output in the old topic": (
        lambda old, new: ([*old, old[-1]], new),
        {"doubled": 1, "seen twice while it ran": 1},
    ),
    "of a topic that never was": (
        lambda old, new: (old, [*new, invented(new)]),
        {"invented": 1, "seen while it ran, gone now": 1},
    ),
    "a worker still holds inputs of the old topic": (
        lambda old, new: ([old[0], *old[2:]], [*new, old[1]]),
        {"out of order": 1},
    ),
    "without the id of its topic": (
        lambda old, new: (old, [nameless(new[0]), *new[1:]]),
        {
            "without the id of one of several topics": 1,
            "lost": 1,
            "not seen while it ran": 1,
            "seen while it ran, gone now": 1,
        },
    ),
}
"""What is done to the right outputs of both topics, and what the check finds then."""


@pytest.mark.parametrize("flaw", FLAWS)
def test_each_flaw_is_found_by_name_in_the_topic_that_has_it(twice: Twice, flaw: str) -> None:
    """The same offset in two topics is no double; what nobody had committed is gone with its topic, not lost."""
    doctored, found = FLAWS[flaw]
    old, new = doctored(twice.old, twice.new)
    assert (twice.old[1].stage, twice.old[-1].stage) == (None, None), "the order is that of one topic"
    findings = twice.verdict(old, new)
    assert found == findings.counts
    assert 2 * COUNT == findings.inputs
    assert findings.gone == (COUNT - DONE if len(old) <= DONE else 0)
