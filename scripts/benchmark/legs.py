"""The two legs: the worker between two topics, and the bare engine over the same windows."""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import orjson
import psutil
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from enricher.app import Model, batch_rules, kafka_worker, window_cutter
from enricher.codec import decode_article
from enricher.core.batching import LengthBucketScheduler
from enricher.inference.lanes import Lanes
from enricher.records import Batch, BatchResult, InFlight, Partition, RawRecord, TokenizedArticle
from enricher.settings import Settings, load_settings

PARTITIONS = 8


@dataclass(frozen=True, slots=True)
class Leg:
    """One leg's time over all articles, and how busy other processes kept the machine meanwhile (cores)."""

    seconds: float
    others_cores: float


class _OthersMeter:
    """Processor time of the whole machine that is not this process's own, in cores."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._start = self._busy_s(), self._own_s(), time.monotonic()

    def cores(self) -> float:
        busy_s, own_s, now_s = self._busy_s(), self._own_s(), time.monotonic()
        return max(0.0, (busy_s - self._start[0] - own_s + self._start[1]) / (now_s - self._start[2]))

    @staticmethod
    def _busy_s() -> float:
        times = psutil.cpu_times()
        return float(sum(times) - times.idle - getattr(times, "iowait", 0.0) - getattr(times, "guest", 0.0))

    def _own_s(self) -> float:
        times = self._process.cpu_times()
        return float(times.user + times.system)


def bare(model: Model, settings: Settings, articles: Sequence[bytes]) -> Leg:
    """The engine alone on windows made beforehand, sorted by length, with the worker's batch size and lanes."""
    batches = _batches(model, settings, articles)
    bell = threading.Event()
    lanes: Lanes[Batch, BatchResult] = Lanes(
        model.engine.run, threads=model.lanes, waiting=model.lanes, wake=bell.set, name="bare"
    )
    meter, started_s, done = _OthersMeter(), time.monotonic(), 0
    todo = iter(batches)
    while done < len(batches):
        bell.clear()
        while lanes.room and (batch := next(todo, None)):
            lanes.submit(batch)
        done += len(lanes.completed()) or (bell.wait(1.0), 0)[1]
    leg = Leg(time.monotonic() - started_s, meter.cores())
    lanes.close()
    return leg


def _batches(model: Model, settings: Settings, articles: Sequence[bytes]) -> list[Batch]:
    cutter, scheduler = window_cutter(settings, model), LengthBucketScheduler(batch_rules(settings, model))
    windows = []
    for number, value in enumerate(articles):
        article = decode_article(value, max_article_chars=settings.articles.max_article_chars)
        [tokens] = model.tokenizer.tokenize([article])
        assert isinstance(tokens, TokenizedArticle)
        ticket = InFlight(RawRecord(Partition("bare", 0), number, None, value), 0.0, article=article)
        windows += cutter.cut(ticket, tokens, now_s=0.0)
    scheduler.add(sorted(windows, key=lambda window: window.length_tokens))
    return list(iter(lambda: scheduler.next_batch(0.0, flush=True), None))


def kafka_to_kafka(model: Model, bootstrap_servers: str, articles: Sequence[bytes]) -> tuple[Leg, dict[str, Any]]:
    """The worker over a backlog of the same articles, from its first read to its last commit, and its counts."""
    with _topics(bootstrap_servers, articles) as environment:
        os.environ.update(environment)
        worker = kafka_worker(load_settings(), model, until_caught_up=True)
        meter = _OthersMeter()
        worker.run()
        leg = Leg(worker.tally.working_s, meter.cores())
    return leg, worker.tally.as_dict()


@contextmanager
def _topics(bootstrap_servers: str, articles: Sequence[bytes]) -> Iterator[Mapping[str, str]]:
    """Topics of this leg's own, the articles in the first; deleted afterwards."""
    name = f"bench-{uuid.uuid4().hex[:8]}"
    names = {role: f"{name}.{role.lower()}" for role in ("INPUT", "OUTPUT", "DEAD_LETTER")}
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    for future in admin.create_topics([NewTopic(topic, PARTITIONS, 1) for topic in names.values()]).values():
        future.result(30)
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    for value in articles:
        producer.produce(names["INPUT"], value, orjson.loads(value)["id"].encode())
        producer.poll(0)
    producer.flush(60)
    try:
        yield {
            "ENRICHER_KAFKA__BOOTSTRAP_SERVERS": bootstrap_servers,
            "ENRICHER_KAFKA__GROUP_ID": name,
            "ENRICHER_KAFKA__INSTANCE": "bench-0",
            **{f"ENRICHER_KAFKA__{role}_TOPIC": topic for role, topic in names.items()},
        }
    finally:
        for future in admin.delete_topics(list(names.values())).values():
            future.result(30)
