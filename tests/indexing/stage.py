"""Shared by the tests of the indexer: an output topic as workers write it, indexers in processes, what the index must hold.

Records come as from workers that read one input topic: a key is in one partition, and offsets only grow there.
"""

from __future__ import annotations

import os
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
from support.forked import Forked
from support.operating import admin_of, expel, producer_of
from support.patience import PATIENCE_S, wait_until
from support.reading import committed_and_ends
from support.search_server import Handler, SearchServer
from support.topics import Topics, make_topics

from enricher.worker.records.outcomes import record_version
from enricher.worker.settings import IndexSettings
from tools import topics as topic_tools

ODD_INDEXER = str(Path(__file__).with_name("odd_indexer.py"))
TOPIC_ID = "aaaaaaaaaaaaaaaaaaaaaa"
PARTITIONS = 4


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

    def write_again(self, before: Written) -> Written:
        """The output of the same input by the model of the next generation, as a replay makes it."""
        record = before.record and {**before.record, "model": {"digest": "B"}}
        again = Written(before.key, before.version + 1, record, self.topic_id)
        if self.wanted[before.key].version == before.version:
            self.wanted[before.key] = again
        return again

    def story(self, keys: int, seed: int = 7) -> list[Written]:
        """Articles of so many keys, 40 % of the records; 30 % updates, 10 % tombstones, 20 % earlier outputs once more."""
        chosen, part = random.Random(seed), keys // 4
        kinds = ["article"] * (keys - 1) + ["update"] * 3 * part + ["tombstone"] * part + ["again"] * 2 * part
        chosen.shuffle(kinds)
        story: list[Written] = []
        for number, kind in enumerate(["article", *kinds]):
            if kind == "again":
                story.append(chosen.choice(story))
                continue
            key = f"key-{len(self.wanted) if kind == 'article' else chosen.randrange(len(self.wanted))}"
            story.append(self.write(key, None if kind == "tombstone" else article(key, number)))
        return story

    def more(self, count: int) -> list[Written]:
        """Updates of the first keys."""
        return [self.write(f"key-{number}", article(f"key-{number}", 10**6 + number)) for number in range(count)]

    def expected(self) -> dict[str, int]:
        """Id and version of each document that the index must hold."""
        return {key: written.version for key, written in self.wanted.items() if written.record is not None}


def article(key: str, number: int = 0) -> dict[str, Any]:
    """An enriched record."""
    entity = {"label": "PER", "text": f"Person {number}", "field": "body", "start": 0, "end": 8, "score": 0.5}
    model = {"digest": "A"}
    return {"schema_version": 1, "id": key, "language": "en", "entities": [entity], "number": number, "model": model}


@dataclass(frozen=True, slots=True)
class Stage:
    """Topics and an index, and the environment of its indexers."""

    topics: Topics
    letters: str
    replayed: str
    """The output topic of a replay."""
    environment: dict[str, str] = field(repr=False)

    def publish(self, records: Iterable[Written], topic: str = "") -> None:
        """Write to the output topic or another one, each key to its partition."""
        producer = producer_of(self.topics.bootstrap_servers)
        for each in records:
            headers: list[tuple[str, str | bytes | None]] = [
                ("enricher.source.topic", self.topics.input),
                ("enricher.source.topic.id", each.topic_id),
                ("enricher.version", str(each.version)),
            ]
            value = None if each.record is None else orjson.dumps(each.record)
            number = int(each.key.rpartition("-")[2]) % PARTITIONS
            producer.produce(topic or self.topics.output, value, each.key, number, headers=headers)
            producer.poll(0)
        assert producer.flush(PATIENCE_S) == 0

    @contextmanager
    def indexer(self, *arguments: str, odd: str = "", **settings: str) -> Iterator[Forked]:
        """`enricher index run` in a process, killed at the end if it still runs. `odd`: see `odd_indexer.py`."""
        program = [ODD_INDEXER, odd] if odd else ["-m", "enricher", "index", "run"]
        named = {f"ENRICHER_{name.upper()}": value for name, value in settings.items()}
        with Forked([*program, *arguments], {**os.environ, **self.environment, **named}) as process:
            yield process

    def members(self) -> set[str]:
        """The indexers that have partitions, by `kafka.instance`."""
        admin, group = admin_of(self.topics.bootstrap_servers), f"{self.topics.group}.index"
        found = admin.describe_consumer_groups([group])[group].result(PATIENCE_S)
        return {each.client_id.removeprefix("enricher-") for each in found.members if each.assignment.topic_partitions}

    def expel(self) -> None:
        """Remove all members from the group, which were killed."""
        expel(self.topics.bootstrap_servers, f"{self.topics.group}.index")

    def lag(self, topic: str = "") -> int:
        """How many offsets of the output topic, or of another one, the group has not committed."""
        topic = topic or self.topics.output
        places = committed_and_ends(self.topics.bootstrap_servers, f"{self.topics.group}.index", topic)
        return sum(end - max(0, committed) for committed, end in places.values())

    def wait_until_indexed(self, topic: str = "") -> None:
        """Until the group has committed all of the output topic, or of another one."""
        wait_until(lambda: self.lag(topic) == 0, PATIENCE_S, "the indexers have caught up", 0.2)


def make_stage(bootstrap_servers: str, url: str, **environment: str) -> Stage:
    """Topics of their own, and indexers that hear of dead members as early as the broker allows."""
    topics = make_topics(bootstrap_servers, PARTITIONS)
    letters, replayed = IndexSettings().dead_letters_of(topics.output), f"{topics.output}.replayed"
    for name, partitions in ((letters, 1), (replayed, PARTITIONS)):
        topic_tools.make_topics(bootstrap_servers, [name], partitions, config={name: {"retention.ms": "-1"}})
    environment = {
        **environment,
        **topics.environment,
        "ENRICHER_KAFKA__SESSION_TIMEOUT_S": "6",
        "ENRICHER_KAFKA__TRANSACTION_TIMEOUT_S": "5",
        "ENRICHER_HEALTH__ENABLED": "false",
        "ENRICHER_INDEX__URL": url,
        "ENRICHER_INDEX__NAME": topics.group,
        "ENRICHER_INDEX__DEAD_LETTER_TOPIC": letters,  # also where a replay's topic is indexed
        "ENRICHER_INDEX__MAX_BATCH_DOCUMENTS": "200",
    }
    return Stage(topics, letters, replayed, environment)


def versions_in(search: SearchServer) -> Mapping[str, int]:
    """Id and version of each document that a search finds."""
    return {key: version for key, (version, _) in search.found.items()}


Late = list[bytes]
"""Bulk requests that are still on their way."""


def hold(search: SearchServer, late: Late) -> None:
    """The next bulk request does not come to its end before `late` is executed: its sender is gone by then."""

    def keep(handler: Handler, body: bytes) -> None:
        late.append(body)
        handler.search.closing.wait(PATIENCE_S)

    search.behaviours.append(keep)
