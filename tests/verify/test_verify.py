"""The verifier on a real broker: correct topics pass, and each violation is found and named, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from confluent_kafka import Message
from kafka.clients import config_for
from kafka.harness import transaction
from support.operating import delete_records
from support.patience import PATIENCE_S
from support.topics import PARTITIONS, Topics, make_topics
from verify.pair import (
    PATIENT,
    Output,
    commit_offsets,
    complete,
    ends_of,
    enriched,
    output_of,
    publish_inputs,
    verified,
    write,
)

from enricher.operate.verify.contract import Source, record_id
from enricher.operate.verify.ledger import Check
from enricher.operate.verify.verification import VerifyOptions, verify
from enricher.worker.records import RawRecord
from tools.kafka import Cluster

pytestmark = pytest.mark.broker

Inputs = tuple[str, list[Message]]
"""An input topic, and its records."""


@pytest.fixture(scope="module")
def published(broker: Cluster) -> Inputs:
    """An input topic is published once for the tests that only change outputs."""
    topics = make_topics(broker.bootstrap_servers)
    return topics.input, publish_inputs(topics)


@pytest.fixture
def shared(topics: Topics, published: Inputs) -> Topics:
    """Fresh topics for outputs, beside that input topic."""
    return replace(topics, input=published[0])


def recompute(inputs: Sequence[RawRecord]) -> list[bytes | None]:
    """A substitute for the model."""
    return [enriched(each.value or b"") for each in inputs]


def check_of(topics: Topics, name: str, options: VerifyOptions | None = None) -> Check:
    """The check of that name, which is the only one that failed."""
    report = verified(topics, options) if options else verified(topics)
    assert [name] == report.failed
    return next(check for check in report.checks if check.name == name)


def _take_header(outputs: list[Output], place: int, name: str) -> None:
    outputs[place].headers[name] = outputs[place + 1].headers[name]


def test_each_wrong_output_is_found_and_named_once(shared: Topics, published: Inputs) -> None:
    """One output each is left out, doubled, swapped, misplaced or changed: exactly these nine are reported."""

    def change(outputs: list[Output]) -> None:
        outputs[5].value = b"cut"
        outputs[19].partition = 3  # the last one of the first partition
        outputs[20], outputs[21] = outputs[21], outputs[20]
        outputs[26].key = b"another"
        outputs[28].value = None
        del outputs[28].headers["content-type"]
        _take_header(outputs, 29, "enricher.record.id")
        _take_header(outputs, 34, "enricher.version")
        outputs.append(outputs[36])
        del outputs[24]

    complete(shared, change, published[1])
    names = ("lost", "doubled", "order", "partition", "keys", "tombstones", "dead letters", "record ids", "versions")
    report = verified(shared)
    assert dict.fromkeys(names, (1, 1)) == {
        check.name: (check.failed, len(check.examples)) for check in report.checks if check.failed
    }


def test_a_wrong_dead_letter_is_found_whatever_headers_its_input_has(shared: Topics, published: Inputs) -> None:
    """The header came with the input and stands before those of the worker."""

    def forge(outputs: list[Output]) -> None:
        outputs[5].value = b"cut"
        outputs[5].headers = {"enricher.dlq.batch.offset": b"3", **outputs[5].headers}

    complete(shared, forge, published[1])
    assert 1 == check_of(shared, "dead letters").failed


def test_a_damaged_header_is_found_and_its_input_has_no_output_then(shared: Topics, published: Inputs) -> None:
    """The output cannot be assigned to an input, so two checks fail."""

    def damage(outputs: list[Output]) -> None:
        outputs[25].headers["enricher.source.offset"] = b"007"

    complete(shared, damage, published[1])
    assert ["lost", "headers"] == verified(shared).failed


def test_an_output_of_an_aborted_input_is_invented(topics: Topics) -> None:
    """An aborted input is no input; neither is one beyond the end or in a partition that does not exist."""

    def invent(outputs: list[Output]) -> None:
        place = next(n for n, output in enumerate(outputs) if output.partition == 1 and output.topic == topics.output)
        while outputs[place + 1].headers.get("enricher.source.offset") != b"22":
            place += 1  # behind the last of the first transaction: 10, a marker, 10 that are aborted, a marker
        for partition, offset in ((b"1", b"15"), (b"1", b"9999"), (b"77", b"0")):
            false = Output(topics.output, 1, b"k", b"{}", dict(outputs[place].headers))
            false.headers |= {"enricher.source.partition": partition, "enricher.source.offset": offset}
            false.headers["enricher.version"] = b"%d" % (int(offset) << 12)
            identity = false.headers["enricher.source.topic.id"].decode()
            source = Source(topics.input, int(partition), int(offset), identity)
            false.headers["enricher.record.id"] = record_id(source).encode()
            false.headers["content-type"] = b"application/json"
            outputs.insert(place + 1, false)

    complete(topics, invent)
    places = {(place.partition, place.offset) for place in check_of(topics, "invented").examples}
    assert {(1, 15), (1, 9999), (77, 0)} == places


def test_an_offset_committed_beyond_the_end_is_found(topics: Topics) -> None:
    """A worker that starts there would skip records."""
    complete(topics)
    commit_offsets(topics, {2: ends_of(topics, topics.input)[2] + 5})
    assert [2] == [place.partition for place in check_of(topics, "committed ahead").examples]


def test_an_open_transaction_is_found(topics: Topics) -> None:
    """The last stable offset is not the end; records after it do not count as lost."""
    inputs = complete(topics)
    end = ends_of(topics, topics.output)[1]
    with transaction(topics.bootstrap_servers, f"{topics.group}.hangs", commit=False) as producer:
        again = output_of(topics, inputs[30])
        producer.produce(topics.output, again.value, again.key, partition=1, headers=list(again.headers.items()))
        producer.flush(PATIENCE_S)
        assert [(topics.output, 1, end)] == check_of(
            topics, "open transactions", VerifyOptions(open_wait_s=5.0)
        ).examples


def test_a_wrong_payload_is_found(topics: Topics) -> None:
    """One entity starts elsewhere than in the recomputation; a score that differs in the fourth digit is tolerated."""

    def change(outputs: list[Output]) -> None:
        outputs[24].value = (outputs[24].value or b"").replace(b'"score":0.5', b'"score":0.5003')
        outputs[25].value = (outputs[25].value or b"").replace(b'"start":0', b'"start":1')

    complete(topics, change)
    assert 1 == check_of(topics, "payload", replace(PATIENT, recompute=recompute)).failed


def test_more_output_partitions_stay_empty(topics: Topics) -> None:
    """An output is in the partition of its input also where its topic has more."""
    other = make_topics(topics.bootstrap_servers, partitions=PARTITIONS + 1)
    outputs = [output_of(topics, source) for source in complete(topics)]  # the output of `topics` is not looked at
    for output in outputs:
        output.topic = other.output
    outputs[0].partition = PARTITIONS
    write(topics, outputs)
    config = config_for(topics, output_topic=other.output, dead_letter_topic=other.dead_letters)
    assert ["partition"] == verify(config, PATIENT).failed


def test_outputs_that_were_deleted_are_unknown_and_deleted_inputs_are_gaps(topics: Topics) -> None:
    """Retention may delete on either side: nothing counts as lost or invented for it, and what is unknown is reported."""
    inputs = complete(topics)
    delete_records(topics.bootstrap_servers, topics.input, {0: 12})
    report = verified(topics)
    assert [] == [check.name for check in report.checks if check.state != "ok"]
    gone = sum(message.partition() == 0 and (message.offset() or 0) < 12 for message in inputs)
    assert gone == report.facts["whose input is gone"]
    delete_records(topics.bootstrap_servers, topics.output, {1: ends_of(topics, topics.output)[1] - 3})
    report = verified(topics)
    assert ["lost"] == [check.name for check in report.checks if check.state == "unknown"]
    assert report.holds
    assert report.facts["inputs whose output may be deleted"] > 10
