"""Shared by the telemetry tests: the numbers of a worker, without a worker."""

from __future__ import annotations

from collections import Counter

from enricher.indexing.index_health import IndexCounts, IndexSnapshot, ObservedIndexer
from enricher.worker.records import Partition
from enricher.worker.stats import Connection, Counters, SchemaState, Snapshot, Unstable, WorkerState
from enricher.worker.telemetry.observed import GpuUse, ModelFacts, Observed, WorkerFacts

WORKER = WorkerFacts("worker-0", "enricher", "articles", "entities", "dead", "1.2.3")
LEVELS = Snapshot(
    state=WorkerState.WORKING,
    connection=Connection(brokers=3, topic_partitions={"articles": 2, "entities": 2}),
    lags={Partition("articles", 0): 7, Partition("articles", 1): 0},
    unstable={Partition("articles", 0): Unstable(), Partition("articles", 1): Unstable(12, 90.0)},
    partitions=2,
    oldest_age_s=1.5,
    in_flight_articles=11,
    in_flight_bytes=2_200,
    held_back_articles=3,
    queued_windows=5,
    queued_tokens=640,
    budget_tokens=512,
    concurrency=2,
    engine_busy_s=12.5,
    engine_starved_s=0.25,
    turn_age_s=0.01,
    schemas=SchemaState({"found": 9, "unavailable": 3}, 12.5, 2),
    waiting_articles=4,
    dead_letter_limits={"max_in_a_row": 0.03, "max_ratio": 0.01},
)


def some_counters() -> Counters:
    """Counters in which nearly everything has happened."""
    counters = Counters(
        read=60, repeated=4, records=40, entities=400, tombstones=2, transactions=5, recoveries=1, forgotten=6
    )
    counters.dead_letters = Counter({"decode:InvalidArticle": 3, "inference:NotFinite": 1})
    counters.windows, counters.batches, counters.real_tokens, counters.padded_tokens = 90, 30, 9_000, 9_100
    counters.without_task.update(other_language=4)
    counters.unmeasured = 5
    counters.tasks = {
        "ner": Counter(ran=40),
        "topics": Counter(ran=30, skipped=9, failed=1),
    }
    counters.labels = Counter({("ner", "ORG"): 300, ("ner", "PER"): 100, ("topics", "Sport"): 30})
    counters.links = Counter({("matched", "ORG"): 7, ("ambiguous", "ORG"): 2})
    counters.catalogue_modified_s = 1_000.0
    counters.dropped_fields.update(["url", "url"])
    counters.rebalances.update(["assigned", "revoked"])
    for value in (0.003, 0.2, 0.2, 4.0):
        counters.latency_s.add(value)
    counters.process_s.add(0.3)
    return counters


def observed(counters: Counters | None = None) -> Observed:
    """A worker with a GPU."""
    return Observed(
        worker=WORKER,
        model=ModelFacts("newswire", "sha256:abc", "fp16", "CUDAExecutionProvider", "cuda"),
        counters=counters or some_counters(),
        snapshot=lambda: LEVELS,
        gpus=lambda: [GpuUse("NVIDIA H200", 0.75, 10 * 2**30, 140 * 2**30)],
    )


def observed_indexer() -> ObservedIndexer:
    """An indexer in which nearly everything has happened."""
    counts = IndexCounts(read=60, rebalances=2)
    counts.outcomes.update(written=40, deleted=9, older=10, dead_letter=1)
    counts.retries.update(busy=5)
    counts.bulk_s.add(0.2)
    counts.latency_s.add(1.0)
    lags = {Partition("entities", 0): 7}
    snapshot = IndexSnapshot(WorkerState.WORKING, 1, lags, 3, 6_000, 250, 0.0, "")
    return ObservedIndexer(WORKER, counts, lambda: snapshot)
