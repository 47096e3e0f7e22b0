"""What the tests with a real broker share: publishing, workers in processes of their own, and a reader that verifies.

The verifier reads with clients of its own and trusts nothing of the worker's code but the header names.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import orjson
from confluent_kafka import Message, Producer
from support.forked import Forked
from support.operating import client, producer_of
from support.patience import PATIENCE_S
from support.reading import committed_and_ends, read_all
from support.stub_worker import STUB_WORKER
from support.topics import Topics

SAMPLES = Path(__file__).resolve().parents[2] / "enricher" / "models" / "articles" / "wikinews.jsonl"

QUICK_FAILOVER = {"ENRICHER_KAFKA__SESSION_TIMEOUT_S": "6", "ENRICHER_KAFKA__TRANSACTION_TIMEOUT_S": "5"}
"""A dead worker's partitions move after the session, its open transaction ends after the transaction timeout."""
CRASHING_WORKER = str(Path(__file__).with_name("crashing_worker.py"))


def sample_articles() -> list[dict[str, Any]]:
    """The 43 sample articles."""
    return [orjson.loads(line) for line in SAMPLES.read_bytes().splitlines()]


def short_articles(count: int, seed: int = 1) -> list[dict[str, Any]]:
    """`count` articles of a headline and a sentence or two, cut from the samples, with unique ids."""
    chosen, samples = random.Random(seed), sample_articles()
    articles = []
    for number in range(count):
        sample = chosen.choice(samples)
        start = chosen.randrange(max(1, len(sample["body"]) - 200))
        body = sample["body"][start : start + chosen.randrange(20, 200)]
        articles.append({"id": f"short-{number}", "title": sample["title"], "body": f"x {body}"})
    return articles


@dataclass(frozen=True, slots=True)
class Sent:
    """One input as it was published."""

    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()


def as_sent(article: Mapping[str, Any]) -> Sent:
    """An article under its id."""
    return Sent(str(article["id"]).encode(), orjson.dumps(article))


def publish(bootstrap_servers: str, topic: str, inputs: Iterable[Sent]) -> dict[tuple[int, int], Sent]:
    """Write the inputs, those of a partition as one batch if they fit; returns which went to which partition and offset.

    A worker then never reads the first of them before the others are there.
    """
    # Until the flush. Records without a key go to any partition, not all to one.
    lingering = {"linger_ms": 60_000, "sticky_partitioning_linger_ms": 0}
    producer = producer_of(bootstrap_servers, message_max_bytes=20_000_000, **lingering)
    producer.list_topics(topic, PATIENCE_S)  # else records get their partitions after the flush has woken the client
    places: dict[tuple[int, int], Sent] = {}

    for sent in inputs:

        def delivered(error: object, message: Message, sent: Sent = sent) -> None:
            assert error is None, error
            places[message.partition() or 0, message.offset() or 0] = sent

        producer.produce(topic, sent.value, sent.key, headers=list(sent.headers), on_delivery=delivered)
        producer.poll(0)
    assert producer.flush(PATIENCE_S) == 0
    return places


def headers_of(message: Message) -> dict[str, bytes | None]:
    """Headers by name, the last one winning."""
    return dict(header_list(message))


def header_list(message: Message) -> list[tuple[str, bytes | None]]:
    """Headers as they came, repeated names included. The client's types allow more than it ever returns."""
    return cast("list[tuple[str, bytes | None]]", message.headers() or [])


def source_of(message: Message) -> tuple[int, int]:
    """Partition and offset of the input that an output names as its source."""
    headers = headers_of(message)
    prefix = "enricher.dlq.source" if "enricher.dlq.stage" in headers else "enricher.source"
    return int(headers[f"{prefix}.partition"] or b""), int(headers[f"{prefix}.offset"] or b"")


def assert_exactly_once(outputs: Sequence[Message], places: Mapping[tuple[int, int], Sent]) -> None:
    """Every input has one output with its key, none is invented, and each partition keeps the input's order."""
    seen = Counter(source_of(message) for message in outputs)
    assert [place for place, count in seen.items() if count > 1] == [], "doubled"
    assert sorted(places.keys() - seen.keys()) == [], "lost"
    assert sorted(seen.keys() - places.keys()) == [], "invented"
    assert all(message.key() == places[source_of(message)].key for message in outputs)
    for topic in {message.topic() for message in outputs}:
        for number in {message.partition() for message in outputs}:
            offsets = [source_of(m) for m in outputs if m.topic() == topic and m.partition() == number]
            assert offsets == sorted(offsets), f"{topic}[{number}] is out of order"


def published(topics: Topics) -> int:
    """How many records a reader sees now."""
    return len(read_all(topics.bootstrap_servers, topics.output))


def is_all_committed(topics: Topics) -> bool:
    """Whether the group's lag is zero on every partition."""
    places = committed_and_ends(topics.bootstrap_servers, topics.group, topics.input).values()
    return all(committed == end for committed, end in places)


def assert_all_is_there_once(topics: Topics, places: Mapping[tuple[int, int], Sent]) -> None:
    """Every input has one enriched record and no dead letter, and is committed."""
    assert_exactly_once(read_all(topics.bootstrap_servers, topics.output), places)
    assert read_all(topics.bootstrap_servers, topics.dead_letters) == []
    assert is_all_committed(topics)


@contextmanager
def transaction(bootstrap_servers: str, name: str, *, commit: bool = True, end: bool = True) -> Iterator[Producer]:
    """A transaction, committed or aborted at the end; with `end` false it stays open, until the id is used again.

    Once it has ended, its markers are written: a reader of committed records that comes now sees it.
    """
    producer = transactional(bootstrap_servers, name)
    producer.begin_transaction()
    yield producer
    assert producer.flush(PATIENCE_S) == 0
    if end:
        (producer.commit_transaction if commit else producer.abort_transaction)(PATIENCE_S)
        transactional(bootstrap_servers, name)  # the broker answers before it writes the markers; the id is free after


def transactional(bootstrap_servers: str, name: str) -> Producer:
    """A producer with this id; any other one with it is fenced when this returns."""
    producer = Producer(client(bootstrap_servers, transactional_id=name))
    producer.list_topics(timeout=PATIENCE_S)  # else the client looks for its coordinator half a second later
    producer.init_transactions(PATIENCE_S)
    return producer


def worker(
    environment: Mapping[str, str], *arguments: str, log: Path | None = None, stub: bool = False, crash_at: str = ""
) -> Forked:
    """`enricher run` in its own process, to be used in a `with`, at whose end it is killed if it still runs.

    `stub`: with a stub for the model, for tests of everything around it; see `support/stub_worker.py`. `crash_at`: with the
    stub, too; see `crashing_worker.py`.
    """
    program = ["-m", "enricher", "run"]
    if crash_at:
        program = [CRASHING_WORKER, crash_at]
    elif stub:
        program = [STUB_WORKER, "run"]
    return Forked([*program, "--report-every-s", "1", *arguments], {**os.environ, **environment}, log)
