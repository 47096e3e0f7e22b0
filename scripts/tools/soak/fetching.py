"""Measures whether the worker's small fetches cost throughput: `python -m tools.soak.fetching` with `scripts` on the path.

A bare client reads a topic of news articles with the worker's properties and with larger fetches, in turns, on a fresh
broker.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from enricher.worker.build.kafka_clients import kafka_config
from enricher.worker.settings import load_settings
from tools.bench.load import articles
from tools.kafka import Cluster
from tools.topics import make_topics

RECORDS = 300_000
TURNS = 5
AT_ONCE = 300
"""About as many as a worker requests at once."""
BEFORE = {
    "queued.max.messages.kbytes": 32_768,
    "fetch.message.max.bytes": 1_048_576,
    "fetch.max.bytes": 52_428_800,
}


def main() -> None:
    """Print the rates for a topic of one partition and one of eight."""
    values = articles("news", 1_000)
    with Cluster(nodes=1) as cluster:
        for partitions in (1, 8):
            topic = f"fetching-{partitions}"
            make_topics(cluster.bootstrap_servers, [topic], partitions)
            _fill(cluster.bootstrap_servers, topic, values)
            own = kafka_config(load_settings()).consumer() | {"bootstrap.servers": cluster.bootstrap_servers}
            rates: dict[str, list[float]] = {"before": [], "now": []}
            for _ in range(TURNS):
                rates["before"].append(_rate(own | BEFORE, topic))
                rates["now"].append(_rate(own, topic))
            medians = {name: statistics.median(each) for name, each in rates.items()}
            print(f"{partitions} partitions: before {medians['before']:,.0f} records/s, now {medians['now']:,.0f}, "
                  f"ratio {medians['now'] / medians['before']:.2f}")  # fmt: skip


def _fill(bootstrap_servers: str, topic: str, values: Sequence[bytes]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 20})
    for number in range(RECORDS):
        while True:
            try:
                producer.produce(topic, values[number % len(values)], b"%d" % number)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(120) == 0


def _rate(properties: Mapping[str, Any], topic: str) -> float:
    """Records per second, from the first one on."""
    consumer = Consumer({**properties, "group.id": "fetching"})
    numbers = consumer.list_topics(topic, timeout=10).topics[topic].partitions
    consumer.assign([TopicPartition(topic, number, 0) for number in numbers])
    read, began_s = 0, 0.0
    while read < RECORDS:
        messages = consumer.consume(AT_ONCE, 0) or consumer.consume(1, 0.1)
        read += sum(message.error() is None for message in messages)
        began_s = began_s or (time.perf_counter() if read else 0.0)
    rate = read / (time.perf_counter() - began_s)
    consumer.close()
    return rate


if __name__ == "__main__":
    main()
