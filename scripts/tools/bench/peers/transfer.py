"""The loop that all peers in Python share: poll, enrich, write records and offsets in one transaction.

Follows confluent-kafka's own exactly-once example (`examples/eos_transactions.py`). A failure ends the process; the next
one continues at the committed offsets. The bench sends orders as lines of JSON, so a peer loads its model once, as a service
would, and runs as often as it is asked.

    python -m tools.bench.peers.transfer    # without a model: what Kafka alone costs, for the leg `latency`
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson
from confluent_kafka import Consumer, KafkaException, Message, Producer

from tools.bench.child import tell
from tools.bench.peers.records import Article, Found, encode

POLL_RECORDS = 64
"""Unless the order says otherwise."""
POLL_S = 0.1

Enrich = Callable[[list[Article]], Sequence[bytes]]
"""Enriches articles; returns records in the same order."""


@dataclass(frozen=True, slots=True)
class Route:
    """Topics, broker and group."""

    bootstrap_servers: str
    group_id: str
    input_topic: str
    output_topic: str


@dataclass(frozen=True, slots=True)
class Transferred:
    """Numbers of articles and transactions, and seconds from the first record read to the last commit."""

    articles: int
    transactions: int
    working_s: float
    compilations: int = 0
    """Graphs that were compiled meanwhile: such a run took longer than the next will."""


def transfer(route: Route, enrich: Enrich, *, articles: int, poll_records: int = POLL_RECORDS) -> Transferred:
    """Read, enrich and write `articles` articles exactly once.

    `poll_records` is half a second of work or more, against 10 ms for a transaction, which so costs a peer almost nothing.
    """
    consumer, producer = _consumer(route), _producer(route)
    done, transactions, first_read_s, last_commit_s = 0, 0, 0.0, 0.0
    try:
        consumer.subscribe([route.input_topic])
        while done < articles:
            messages = _check(consumer.consume(poll_records, POLL_S))
            if not messages:
                continue
            first_read_s = first_read_s or time.monotonic()
            records = enrich([orjson.loads(message.value() or b"") for message in messages])
            _commit(route, consumer, producer, messages, records)
            last_commit_s = time.monotonic()
            done, transactions = done + len(messages), transactions + 1
    finally:
        consumer.close()
    return Transferred(done, transactions, last_commit_s - first_read_s)


def _consumer(route: Route) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": route.bootstrap_servers,
            "group.id": route.group_id,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )


def _producer(route: Route) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": route.bootstrap_servers,
            "transactional.id": f"{route.group_id}-0",
            "compression.type": "lz4",
            "linger.ms": 0,
        }
    )
    producer.init_transactions(30)
    return producer


def _check(messages: list[Message]) -> list[Message]:
    for message in messages:
        if message.error():
            raise KafkaException(message.error())
    return messages


def _commit(
    route: Route, consumer: Consumer, producer: Producer, messages: Sequence[Message], records: Sequence[bytes]
) -> None:
    producer.begin_transaction()
    for message, record in zip(messages, records, strict=True):
        producer.produce(route.output_topic, record, message.key())
    positions = consumer.position(consumer.assignment())
    producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata())
    producer.commit_transaction()


Options = dict[str, Any]
"""Options of a worker, such as its batch size; the bench tries several and uses the best."""


def obey(make: Callable[[Options], Enrich], compilations: Callable[[], int] = lambda: 0) -> None:
    """Execute orders until standard input ends. `make` builds the enriching function for an order's options.

    `compilations`: how many graphs the process has compiled so far.
    """
    for line in sys.stdin.buffer:
        order = orjson.loads(line)
        options, before = order["options"], compilations()
        polling = options.get("poll_records", POLL_RECORDS)
        done = transfer(Route(**order["route"]), make(options), articles=order["articles"], poll_records=polling)
        tell(replace(done, compilations=compilations() - before))


def _without_a_model(_options: Options) -> Enrich:
    card = {"name": "none", "digest": "", "precision": ""}
    return lambda articles: [encode(article, Found([], {"truncated": False}), card) for article in articles]


if __name__ == "__main__":
    obey(_without_a_model)
