"""The input topic is deleted and created again: skipped records are lost, and old outputs are no violation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import orjson
import pytest
from commands.cli_runner import run
from confluent_kafka import Message
from kafka.clients import config_for
from support import operating
from support.made_again import make_again, topic_id
from support.offset_watch import watching
from support.operating import delete_records
from support.patience import PATIENCE_S, wait_until
from support.reading import read_all
from support.topics import PARTITIONS, Topics
from verify.pair import PATIENT, commit_offsets, ends_of, enriched, outputs_of, verified, write

from enricher.errors import BrokerError
from enricher.operate.verify.ledger import Check, Report
from enricher.operate.verify.verification import verify

pytestmark = pytest.mark.broker

OLD_END, NEW_END = 25, 40


def fill(topics: Topics, end: int) -> list[Message]:
    """The same articles in each partition each time, like a topic that is filled again from one archive."""
    records = (
        {
            "value": orjson.dumps({"id": f"{partition}-{offset}", "body": f"text {offset}"}),
            "key": f"{partition}-{offset}",
            "partition": partition,
        }
        for offset in range(end)
        for partition in range(PARTITIONS)
    )
    operating.write(topics.bootstrap_servers, topics.input, records)
    return sorted(read_all(topics.bootstrap_servers, topics.input), key=lambda m: (m.partition(), m.offset()))


def enrich(topics: Topics, inputs: Sequence[Message], identity: str) -> None:
    """Write outputs of these inputs, and commit the group's offsets at the end of the topic."""
    write(topics, outputs_of(topics, inputs, identity))
    commit_offsets(topics, ends_of(topics, topics.input), identity)


def enriched_once(topics: Topics) -> str:
    """Fill and enrich the first topic, then delete and create it again; returns its new id."""
    enrich(topics, fill(topics, OLD_END), topic_id(topics.bootstrap_servers, topics.input) or "")
    assert verified(topics).failed == []
    return make_again(topics.bootstrap_servers, topics.input)


def beyond_the_old_end(inputs: Sequence[Message]) -> list[Message]:
    """What a worker reads that continues at its offset in the old topic."""
    return [message for message in inputs if (message.offset() or 0) >= OLD_END]


def check_of(report: Report, name: str) -> Check:
    """The check of that name."""
    return next(check for check in report.checks if check.name == name)


def test_what_was_passed_over_in_the_new_topic_is_lost(topics: Topics) -> None:
    """The old topic has outputs of the same offsets, so only the id shows that the new one has none.

    Retention is no excuse while outputs of the old topic are left: topics lose their oldest records first.
    """
    identity = enriched_once(topics)
    enrich(topics, beyond_the_old_end(fill(topics, NEW_END)), identity)
    report = verified(topics)
    assert PARTITIONS * OLD_END == report.facts["outputs of an earlier topic of this name"]
    for topic in (topics.output, topics.dead_letters):
        delete_records(topics.bootstrap_servers, topic, dict.fromkeys(range(PARTITIONS), 1))
    for each in (report, verified(topics)):
        assert ["lost"] == each.failed
        lost = check_of(each, "lost")
        assert (PARTITIONS * OLD_END, (topics.input, 0, 0)) == (lost.failed, lost.examples[0])


def test_a_new_topic_is_right_beside_the_outputs_of_the_old_one(topics: Topics) -> None:
    """Nothing is doubled, out of order or invented: the old outputs are counted separately."""
    identity = enriched_once(topics)
    enrich(topics, fill(topics, NEW_END), identity)
    report = verified(topics)
    assert {check.name: "ok" for check in report.checks} == {check.name: check.state for check in report.checks}
    assert PARTITIONS * NEW_END == check_of(report, "lost").checked == check_of(report, "doubled").checked
    assert PARTITIONS * OLD_END == report.facts["outputs of an earlier topic of this name"]
    shown = run("verify", env=topics.environment).stdout
    assert f"{PARTITIONS * OLD_END} outputs belong to an earlier topic of this name: they are not checked" in shown


def test_an_offset_committed_for_the_old_topic_counts_as_none(topics: Topics) -> None:
    """Nothing is due because of it, and nothing is published ahead of it."""
    old = topic_id(topics.bootstrap_servers, topics.input)
    again = enriched_once(topics)
    inputs = fill(topics, NEW_END)
    commit_offsets(topics, dict.fromkeys(range(PARTITIONS), 10 * NEW_END), old)
    report = verified(topics)
    assert [] == report.failed
    assert 0 == check_of(report, "lost").checked
    write(topics, outputs_of(topics, inputs[:1], again))
    report = verified(topics)
    assert ["published ahead"] == report.failed
    assert [(topics.input, 0, 0)] == check_of(report, "published ahead").examples


def test_records_of_the_old_topic_are_not_recomputed(topics: Topics) -> None:
    """Another article is at their source's offset now."""
    identity = enriched_once(topics)
    other = orjson.dumps({"id": "another", "body": "text"})
    records = ({"value": other, "key": b"k", "partition": number} for number in range(PARTITIONS))
    operating.write(topics.bootstrap_servers, topics.input, records)
    enrich(topics, read_all(topics.bootstrap_servers, topics.input), identity)
    options = replace(PATIENT, recompute=lambda inputs: [enriched(each.value or b"") for each in inputs])
    report = verified(topics, options)
    assert [] == report.failed
    assert PARTITIONS == check_of(report, "payload").checked


def test_committed_offsets_of_a_new_topic_may_begin_at_its_beginning(topics: Topics) -> None:
    """They name the new id, and are missing for a while, because Kafka removes those of a deleted topic."""
    old = topic_id(topics.bootstrap_servers, topics.input)
    commit_offsets(topics, {0: 25, 1: 25}, old)
    with watching(config_for(topics), every_s=0.05) as check:
        wait_until(lambda: check.checked > 0, PATIENCE_S, "two samples")
        new = make_again(topics.bootstrap_servers, topics.input)
        commit_offsets(topics, {0: 3}, new)
        before = check.checked
        wait_until(lambda: check.checked > before, PATIENCE_S, "one more sample")
    assert "ok" == check.state
    with watching(config_for(topics), every_s=0.05) as check:
        wait_until(lambda: check.checked > 0, PATIENCE_S, "two samples")
        commit_offsets(topics, {0: 2}, new)
    assert [(topics.input, 0, 2)] == check.examples


def test_a_topic_that_is_made_again_while_it_is_verified_gives_no_verdict(topics: Topics) -> None:
    """The records that were read belong to two topics."""
    enrich(topics, fill(topics, OLD_END), topic_id(topics.bootstrap_servers, topics.input) or "")
    made: list[str] = []

    def progress(doing: str, _done: int, _total: int) -> None:
        if doing == f"reading {topics.dead_letters}" and not made:
            made.append(make_again(topics.bootstrap_servers, topics.input))

    with pytest.raises(BrokerError, match="created again while it was verified: verify once more"):
        verify(config_for(topics), PATIENT, progress)
    assert made
