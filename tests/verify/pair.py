"""Input and outputs as a correct worker would leave them, written by plain clients; tests change the outputs first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from uuid import UUID, uuid5

import orjson
from confluent_kafka import Consumer, Message, TopicPartition
from kafka.clients import config_for
from kafka.harness import transaction
from support.made_again import topic_id
from support.operating import client
from support.patience import PATIENCE_S
from support.reading import read_all
from support.topics import PARTITIONS, Topics

from enricher.operate.verify.ledger import Report
from enricher.operate.verify.verification import VerifyOptions, verify

NAMESPACE = UUID("039dac1f-0581-5e81-9377-388d5ac680c4")
PATIENT = VerifyOptions(open_wait_s=PATIENCE_S)
id_of = cache(topic_id)


@dataclass(slots=True)
class Output:
    """One record to write to the output topic, or to the dead letters."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: dict[str, bytes] = field(default_factory=dict)


def publish_inputs(topics: Topics, each: int = 10) -> list[Message]:
    """Publish inputs, a tombstone among them, in transactions of which one is aborted; returns the committed ones."""
    for number, commit in enumerate((True, False, True)):
        with transaction(topics.bootstrap_servers, f"{topics.group}.in.{number}", commit=commit) as producer:
            for index in range(each * PARTITIONS):
                key = f"{number}-{index % 7}".encode()
                value = None if index == 13 else orjson.dumps({"id": f"{number}-{index}", "body": f"text {index}"})
                producer.produce(topics.input, value, key, partition=index % PARTITIONS)
    return sorted(read_all(topics.bootstrap_servers, topics.input), key=lambda m: (m.partition(), m.offset()))


def enriched(value: bytes) -> bytes:
    """A substitute for the model: one entity whose position depends on the article."""
    name = orjson.loads(value)["id"]
    entity = {"field": "body", "start": 0, "end": len(name), "text": name, "label": "X", "score": 0.5}
    model = {"name": "substitute", "digest": "0", "precision": "fp32"}
    coverage = {"tokens": 2, "windows": 1, "truncated": False}
    record = {"schema_version": 1, "id": name, "entities": [entity], "model": model, "coverage": coverage}
    return orjson.dumps(record)


def output_of(topics: Topics, source: Message, *, dead: bool = False, identity: str | None = None) -> Output:
    """The output of an input that the schemas require. `identity`: another id than that of the input topic now."""
    identity = identity or id_of(topics.bootstrap_servers, topics.input) or ""
    partition, offset = source.partition() or 0, source.offset() or 0
    value, prefix = source.value(), "enricher.dlq" if dead else "enricher"
    told = {}
    if dead:
        told = {
            "stage": "decode",
            "error.type": "X",
            "error.message": "",
            "attempts": "1",
            "version": "1",
            "time": "now",
        }
    headers = {
        **{f"{prefix}.{name}": text.encode() for name, text in told.items()},
        f"{prefix}.source.topic": topics.input.encode(),
        f"{prefix}.source.topic.id": identity.encode(),
        f"{prefix}.source.partition": b"%d" % partition,
        f"{prefix}.source.offset": b"%d" % offset,
    }
    if dead:
        return Output(topics.dead_letters, partition, source.key(), value, headers)
    name = f"{topics.input}/{identity}/{partition}/{offset}"
    headers["enricher.record.id"] = str(uuid5(NAMESPACE, name)).encode()
    headers["enricher.version"] = b"%d" % (offset << 12)
    headers["enricher.schema.version"] = b"2"
    if value is not None:
        headers["content-type"] = b"application/json"
    return Output(topics.output, partition, source.key(), value and enriched(value), headers)


def outputs_of(topics: Topics, inputs: Sequence[Message], identity: str | None = None) -> list[Output]:
    """An output for each input, every ninth a dead letter."""
    return [output_of(topics, source, dead=index % 9 == 5, identity=identity) for index, source in enumerate(inputs)]


def write(topics: Topics, outputs: Sequence[Output], *, commit: bool = True) -> None:
    """Write the outputs in one transaction."""
    with transaction(topics.bootstrap_servers, f"{topics.group}.out.{commit}", commit=commit) as producer:
        for output in outputs:
            producer.produce(
                output.topic, output.value, output.key, partition=output.partition, headers=list(output.headers.items())
            )


def ends_of(topics: Topics, topic: str) -> dict[int, int]:
    """The end of each partition."""
    with _group(topics) as consumer:
        return {
            n: consumer.get_watermark_offsets(TopicPartition(topic, n), timeout=PATIENCE_S)[1]
            for n in range(PARTITIONS)
        }


def commit_offsets(topics: Topics, offsets: Mapping[int, int], identity: str | None = None) -> None:
    """Commit input offsets for the group, with the topic's id in the metadata if one is given."""
    metadata = f"enricher/1 topic-id={identity} attempts=1" if identity else ""
    with _group(topics) as consumer:
        tps = [TopicPartition(topics.input, number, offset, metadata) for number, offset in offsets.items()]
        consumer.commit(offsets=tps, asynchronous=False)


def complete(
    topics: Topics,
    change: Callable[[list[Output]], Any] = lambda _outputs: None,
    inputs: list[Message] | None = None,
) -> list[Message]:
    """Write inputs, unless they are given, an aborted attempt at their outputs, and the outputs after `change`.

    Commits offsets at the end.
    """
    inputs = inputs or publish_inputs(topics)
    outputs = outputs_of(topics, inputs)
    write(topics, outputs[:30], commit=False)
    change(outputs)
    write(topics, outputs)
    commit_offsets(topics, ends_of(topics, topics.input))
    return inputs


def verified(topics: Topics, options: VerifyOptions = PATIENT) -> Report:
    """Verify the test's topics."""
    return verify(config_for(topics), options)


@contextmanager
def _group(topics: Topics) -> Iterator[Consumer]:
    consumer = Consumer(client(topics.bootstrap_servers, group_id=topics.group))
    try:
        yield consumer
    finally:
        consumer.close()
