"""A recreated input topic: the check tells its inputs from the old topic's by the topic id."""

from __future__ import annotations

from collections.abc import Sequence
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


def test_right_answers_to_both_topics_are_found_right(twice: Twice) -> None:
    """Outputs of the old topic's inputs stay and are correct."""
    findings = twice.verdict(twice.old, twice.new)
    assert {} == findings.counts
    assert (2 * COUNT, 0) == (findings.inputs, findings.gone)


def test_input_that_was_deleted_before_it_was_committed_is_not_lost(twice: Twice) -> None:
    """An input that was deleted before it was committed is counted as gone, not as lost."""
    findings = twice.verdict(twice.old[:DONE], twice.new)
    assert {} == findings.counts
    assert COUNT - DONE == findings.gone


def test_committed_input_of_the_deleted_topic_can_be_lost(twice: Twice) -> None:
    """A committed input of the deleted topic must have its output."""
    findings = twice.verdict([*twice.old[:5], *twice.old[6:DONE]], twice.new)
    assert {"lost": 1, "not seen while it ran": 1} == findings.counts
    assert [str((twice.old[5].input_id.topic_id, 0, 5))] == findings.wrong["lost"]


def test_input_of_the_new_topic_can_be_lost_though_its_place_has_an_output(twice: Twice) -> None:
    """An input of the new topic is lost if a reader continues at the old offset."""
    findings = twice.verdict(twice.old, twice.new[DONE:])
    assert {"lost": DONE, "not seen while it ran": DONE} == findings.counts


def test_second_output_for_an_input_of_the_old_topic_is_found(twice: Twice) -> None:
    """The same offset in two topics is no double; the same one twice in one topic is."""
    findings = twice.verdict([*twice.old, twice.old[-1]], twice.new)
    assert {"doubled": 1, "seen twice while it ran": 1} == findings.counts


def test_output_of_a_topic_that_never_was_is_invented(twice: Twice) -> None:
    """The offset exists in both topics, the topic id in none."""
    invented = replace(twice.new[3], input_id=InputId("no-such-id", 0, 3))
    counts = twice.verdict(twice.old, [*twice.new, invented]).counts
    assert {"invented": 1, "seen while it ran, gone now": 1} == counts


def test_output_of_the_old_topic_behind_one_of_the_new_is_out_of_order(twice: Twice) -> None:
    """A worker that still holds inputs of the old topic must not publish them later."""
    late = twice.old[1]
    assert late.stage is None, "the last output of the same topic is a record too"
    old = [twice.old[0], *twice.old[2:]]
    assert {"out of order": 1} == twice.verdict(old, [*twice.new, late]).counts


def test_output_that_does_not_say_of_which_topic_it_is_cannot_be_right(twice: Twice) -> None:
    """With one topic an output needs no topic id; with two it would be ambiguous."""
    first = twice.new[0]
    nameless = replace(first, input_id=InputId(None, first.input_id.partition, first.input_id.offset))
    counts = twice.verdict(twice.old, [nameless, *twice.new[1:]]).counts
    assert counts == {
        "without the id of one of several topics": 1,
        "lost": 1,
        "not seen while it ran": 1,
        "seen while it ran, gone now": 1,
    }
