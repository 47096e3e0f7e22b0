"""The leg `search_index`: `enricher index run` against a plain loop around `streaming_bulk`, into a real OpenSearch."""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import orjson
import psutil
from confluent_kafka import Producer

from enricher.worker.records.version import record_version
from enricher.worker.settings import IndexSettings
from tools import enricher_command
from tools.bench.bench import PARTITIONS, Bench
from tools.bench.load import articles
from tools.bench.outcome import Outcome, Table
from tools.bench.repeating import in_turns, spreads_of
from tools.opensearch import OpenSearch
from tools.topics import Topics, make_topics

ABOUT = (
    "Enriched records of news articles, about 40 entities each, from one broker into one node of OpenSearch on the same "
    "machine. The plain loop polls 500 records, calls opensearch-py's `streaming_bulk` and commits; it sends no versions."
)
RECORDS, QUICK_RECORDS = 10_000, 500
MOST_REPETITIONS = 3
_ENTITIES = 40
_FLUSH_S = 120.0
_RUN_S = 600.0


@dataclass(frozen=True, slots=True)
class IndexRun:
    """One contender's run. `server_s`: processor seconds of OpenSearch."""

    records: int
    working_s: float
    working_cpu_s: float
    server_s: float

    @property
    def per_s(self) -> float:
        """Records a second, from the first one read to the last commit."""
        return self.records / self.working_s

    @property
    def cost_us(self) -> float:
        """Processor microseconds of the indexing process for a record."""
        return 1e6 * self.working_cpu_s / self.records

    @property
    def server_us(self) -> float:
        """Processor microseconds of OpenSearch for a record."""
        return 1e6 * self.server_s / self.records


def measure(bench: Bench) -> Outcome:
    """Run the leg: a minute or two."""
    count = QUICK_RECORDS if bench.quick else RECORDS
    topics = Topics.fresh(bench.cluster.bootstrap_servers, "bench-index")
    letters = IndexSettings().dead_letters_of(topics.output)
    make_topics(topics.bootstrap_servers, [topics.output, letters], PARTITIONS)
    bench.say(f"publishing {count:,} records")
    size_bytes = _publish(topics, count)
    with OpenSearch() as server:
        contenders: dict[str, Callable[[], IndexRun]] = {
            "index run": lambda: _measure(server, count, lambda name: _index_run(topics, server.url, name)),
            "streaming_bulk": lambda: _measure(
                server, count, lambda name: _plain_loop(topics, server.url, name, count)
            ),
        }
        for run in contenders.values():  # the first run of a node compiles its code
            run()
        runs = in_turns(contenders, min(bench.repetitions, MOST_REPETITIONS), bench.say)
    return outcome(runs, count, size_bytes)


def outcome(runs: dict[str, list[IndexRun]], count: int, size_bytes: float) -> Outcome:
    """Compare the contenders. `size_bytes`: the mean size of a record."""
    spreads = spreads_of(runs, ("per_s", "cost_us", "server_us"))
    ours, plain = spreads["index run"], spreads["streaming_bulk"]
    rate_over_plain = ours["per_s"].median / plain["per_s"].median
    figures: dict[str, Any] = {
        "records": count,
        "record_bytes": size_bytes,
        "rate_over_plain": rate_over_plain,
        "cost_over_plain": ours["cost_us"].median / plain["cost_us"].median,
        **{
            name: dict(
                zip(("records_per_s", "cost_us", "opensearch_us"), (s.median for s in each.values()), strict=True)
            )
            for name, each in spreads.items()
        },
    }
    columns = ("indexer", "records/s", "its processor time, µs a record", "OpenSearch's, µs a record")
    rows = [[name, *map(str, each.values())] for name, each in spreads.items()]
    note = f"{count:,} records of {size_bytes:,.0f} bytes; `index run` has {rate_over_plain:.2f} times the plain rate."
    return Outcome(figures, [Table("Into the search index", columns, rows, note)])


def _measure(server: OpenSearch, count: int, run: Callable[[str], dict[str, Any]]) -> IndexRun:
    process = psutil.Process(server.pid)
    before = process.cpu_times()
    counts = run(f"bench-{uuid.uuid4().hex[:8]}")
    after = process.cpu_times()
    assert counts["read"] == count, f"{counts} instead of {count} records"
    spent_s = after.user + after.system - before.user - before.system
    return IndexRun(count, counts["working_s"], counts["working_cpu_s"], spent_s)


def _index_run(topics: Topics, url: str, index: str) -> dict[str, Any]:
    variables = {
        **topics.variables(),
        "ENRICHER_INDEX__URL": url,
        "ENRICHER_INDEX__NAME": index,
        "ENRICHER_INDEX__GROUP_ID": index,
        "ENRICHER_HEALTH__ENABLED": "false",
    }
    return enricher_command.summary_of("index", "run", variables=variables, timeout_s=_RUN_S)


def _plain_loop(topics: Topics, url: str, index: str, count: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "tools.bench.naive_indexer"]
    arguments = [topics.bootstrap_servers, topics.output, url, index, str(count)]
    run = subprocess.run([*command, *arguments], check=True, timeout=_RUN_S, capture_output=True)
    counts: dict[str, Any] = orjson.loads(run.stdout)
    return counts


def _publish(topics: Topics, count: int) -> float:
    """Write the records; returns their mean size."""
    producer = Producer({"bootstrap.servers": topics.bootstrap_servers, "linger.ms": 20, "compression.type": "lz4"})
    texts = [orjson.loads(article) for article in articles("news", 43)]
    total = 0
    for number in range(count):
        record = orjson.dumps(record_of(texts[number % len(texts)], number))
        total += len(record)
        headers: list[tuple[str, str | bytes | None]] = [
            ("enricher.source.topic", topics.input),
            ("enricher.version", str(record_version(0, number, 0))),
        ]
        producer.produce(topics.output, record, f"key-{number}", headers=headers)
        producer.poll(0)
    assert producer.flush(_FLUSH_S) == 0
    return total / count


def record_of(article: dict[str, Any], number: int) -> dict[str, Any]:
    """A record as a worker writes it, with words of the article for entities."""
    words = article["body"].split()
    starts = range(0, max(1, len(words) - 2), max(1, len(words) // _ENTITIES))
    entities = [
        {
            "label": ("PER", "ORG", "LOC")[place % 3],
            "text": " ".join(words[place : place + 2]),
            "field": "body",
            "start": place,
            "end": place + 10,
            "score": 0.98,
        }
        for place in starts
    ][:_ENTITIES]
    return {
        "schema_version": 1,
        "id": f"article-{number}",
        "language": "en",
        "published_at": "2026-11-25T12:00:00Z",
        "entities": entities,
        "model": {"name": "newswire-minilm", "digest": "sha256:6a1f0c", "precision": "int8"},
        "coverage": {"tokens": len(words), "windows": 1 + len(words) // 200, "truncated": False},
    }
