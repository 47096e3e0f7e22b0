"""Shared by the tests of the indexer: an output topic as workers write it, indexers in processes, what the index must hold.

Records come as from workers that read one input topic: a key is in one partition, and offsets only grow there.
"""

from __future__ import annotations

import os
import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
from confluent_kafka import Producer
from support.forked import Forked
from support.patience import PATIENCE_S, wait_until
from support.reading import committed_and_ends
from support.search_server import SearchServer
from support.topics import Topics, make_topics

from enricher.worker.records.version import record_version
from tools import topics as topic_tools

ODD_INDEXER = str(Path(__file__).with_name("odd_indexer.py"))
TOPIC_ID = "aaaaaaaaaaaaaaaaaaaaaa"
PARTITIONS = 8


@dataclass(frozen=True, slots=True)
class Written:
    """One record of the output topic; `record` None is a tombstone."""

    key: str
    version: int
    record: dict[str, Any] | None
    topic_id: str = TOPIC_ID


@dataclass(slots=True)
class Publishers:
    """What publishers and workers do with keys: new articles, updates, tombstones. `wanted`: the newest of each key."""

    epoch: int = 0
    topic_id: str = TOPIC_ID
    offsets: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    wanted: dict[str, Written] = field(default_factory=dict)

    def write(self, key: str, record: dict[str, Any] | None, generation: int = 0) -> Written:
        """The output of the next input of this key."""
        number = int(key.rpartition("-")[2]) % PARTITIONS
        version = record_version(self.epoch, self.offsets[number], generation)
        self.offsets[number] += 1
        self.wanted[key] = Written(key, version, record, self.topic_id)
        return self.wanted[key]

    def story(self, count: int, keys: int, seed: int = 7) -> list[Written]:
        """So many records, a tenth of them tombstones, of so many keys."""
        chosen = random.Random(seed)
        return [self._next(f"key-{chosen.randrange(keys)}", number, chosen) for number in range(count)]

    def _next(self, key: str, number: int, chosen: random.Random) -> Written:
        return self.write(key, None if chosen.random() < 0.1 else article(key, number))

    def expected(self) -> dict[str, int]:
        """Id and version of each document that the index must hold."""
        return {key: written.version for key, written in self.wanted.items() if written.record is not None}


def article(key: str, number: int = 0) -> dict[str, Any]:
    """An enriched record."""
    entity = {"label": "PER", "text": f"Person {number}", "field": "body", "start": 0, "end": 8, "score": 0.5}
    return {"schema_version": 1, "id": key, "language": "en", "entities": [entity], "number": number}


@dataclass(frozen=True, slots=True)
class Stage:
    """Topics and an index, and the environment of its indexers."""

    topics: Topics
    letters: str
    environment: dict[str, str] = field(repr=False)

    def publish(self, records: Sequence[Written]) -> None:
        """Write to the output topic, each key to its partition."""
        producer = Producer({"bootstrap.servers": self.topics.bootstrap_servers, "log_level": 0, "linger.ms": 5})
        for each in records:
            headers: list[tuple[str, str | bytes | None]] = [
                ("enricher.source.topic", self.topics.input),
                ("enricher.source.topic.id", each.topic_id),
                ("enricher.version", str(each.version)),
            ]
            value = None if each.record is None else orjson.dumps(each.record)
            number = int(each.key.rpartition("-")[2]) % PARTITIONS
            producer.produce(self.topics.output, value, each.key, number, headers=headers)
            producer.poll(0)
        assert producer.flush(PATIENCE_S) == 0

    @contextmanager
    def indexer(self, *arguments: str, odd: str = "", **settings: str) -> Iterator[Forked]:
        """`enricher index run` in a process, killed at the end if it still runs. `odd`: see `odd_indexer.py`."""
        program = [ODD_INDEXER, odd] if odd else ["-m", "enricher", "index", "run"]
        named = {f"ENRICHER_{name.upper()}": value for name, value in settings.items()}
        with Forked([*program, *arguments], {**os.environ, **self.environment, **named}) as process:
            yield process

    def lag(self) -> int:
        """How many offsets the group has not committed."""
        places = committed_and_ends(self.topics.bootstrap_servers, f"{self.topics.group}.index", self.topics.output)
        return sum(end - max(0, committed) for committed, end in places.values())

    def wait_until_indexed(self) -> None:
        """Until the group has committed all of the topic."""
        wait_until(lambda: self.lag() == 0, PATIENCE_S, "the indexers have caught up", 0.2)


def make_stage(bootstrap_servers: str, url: str) -> Stage:
    """Topics of their own, and indexers that hear of dead members as early as the broker allows."""
    topics = make_topics(bootstrap_servers, PARTITIONS)
    letters = f"{topics.output}.index-dead-letters"
    topic_tools.make_topics(bootstrap_servers, [letters], 1, config={letters: {"retention.ms": "-1"}})
    environment = {
        **topics.environment,
        "ENRICHER_KAFKA__SESSION_TIMEOUT_S": "6",
        "ENRICHER_KAFKA__TRANSACTION_TIMEOUT_S": "5",
        "ENRICHER_HEALTH__ENABLED": "false",
        "ENRICHER_INDEX__URL": url,
        "ENRICHER_INDEX__NAME": topics.group,
        "ENRICHER_INDEX__MAX_BATCH_DOCUMENTS": "200",
        "ENRICHER_INDEX__RETRY_MAX_S": "1",
    }
    return Stage(topics, letters, environment)


def versions_in(search: SearchServer) -> Mapping[str, int]:
    """Id and version of each document that a search finds."""
    return {key: version for key, (version, _) in search.found.items()}
