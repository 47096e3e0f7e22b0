"""`scripts/soak`: runs one worker under steady load, samples its memory, and judges the growth."""

from __future__ import annotations

import logging
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from itertools import cycle
from typing import Annotated

import orjson
import psutil
import typer
from confluent_kafka import Producer

from tools import enricher_command
from tools.bench.bench import Bench
from tools.bench.load import articles
from tools.reading import Reader
from tools.topics import Topics
from tools.waiting import wait_until

LIMIT = 0.05
"""Largest growth from warm-up to the end; with more, a worker would need restarts before its node does."""
_SPAN = 0.1
"""Start and end are medians over this share of the time, since single samples include temporary buffers."""
_ARTICLES = 2_000
"""How many different ones there are."""
_BAD_EVERY, _BAD = 50, b'{"id": 1}'
"""One input in this many is invalid, so that dead letters are part of the load."""
_SAMPLE_EVERY_S = 2.0
_CATCH_UP_S = 60.0
"""How long the worker may lag after the last article."""


def growth(sizes: Sequence[float]) -> tuple[float, float]:
    """The size at the beginning and at the end, of at least ten samples in order of time."""
    assert len(sizes) >= 10, "too few samples to speak of growth"
    span = max(1, int(len(sizes) * _SPAN))
    return statistics.median(sizes[:span]), statistics.median(sizes[-span:])


def is_flat(sizes: Sequence[float]) -> bool:
    start, end = growth(sizes)
    return end < (1 + LIMIT) * start


def main(
    *,
    minutes: Annotated[float, typer.Option(help="Minutes of sampling, after the warm-up.")] = 30.0,
    warm_up_minutes: Annotated[float, typer.Option(help="Minutes of load before sampling starts.")] = 5.0,
    rate: Annotated[float, typer.Option(help="Headlines per second.")] = 50.0,
) -> None:
    """Run one worker under steady load and check that its resident size stays flat."""
    logging.basicConfig(level=logging.ERROR)
    bench = Bench(1, quick=False, say=_say)
    command = ("run", "--report-every-s", "60")
    with (
        bench.closing,
        bench.topics(articles("headlines", 1)) as topics,
        enricher_command.running(*command, variables=topics.variables("soak-0"), stderr=subprocess.DEVNULL) as worker,
    ):
        reader = Reader(topics.bootstrap_servers, topics.group)
        sizes = _samples(topics, reader, psutil.Process(worker.pid), rate, 60 * warm_up_minutes, 60 * minutes)
        caught_up = wait_until(lambda: reader.lag(topics.input) == 0, _CATCH_UP_S, 0.5)
    start_mib, end_mib = growth(sizes)
    print(
        f"{len(sizes)} samples over {minutes:g} min at {rate:g} headlines/s: {start_mib:.0f} MiB after warm-up, "
        f"{end_mib:.0f} MiB at the end, {end_mib / start_mib - 1:+.1%} (limit {LIMIT:.0%}): "
        f"{'flat' if is_flat(sizes) else 'NOT FLAT'}"
    )
    if not caught_up:
        _say("but articles are left: the load was too high; use a lower --rate")
    sys.exit(0 if is_flat(sizes) and caught_up else 1)


def _samples(
    topics: Topics, reader: Reader, worker: psutil.Process, rate: float, warm_up_s: float, span_s: float
) -> list[float]:
    """Publish steadily; returns the worker's resident MiB from time to time, after the warm-up."""
    producer = Producer({"bootstrap.servers": topics.bootstrap_servers, "linger.ms": 20})
    _say(f"warming up for {warm_up_s / 60:g} min, then {span_s / 60:g} min of samples")
    began_s, samples, next_look_s = time.monotonic(), list[float](), 0.0
    for published, article in enumerate(cycle(map(orjson.loads, articles("headlines", _ARTICLES)))):
        now_s = time.monotonic() - began_s
        if now_s > warm_up_s + span_s:
            break
        name = f"article-{published}"
        producer.produce(topics.input, orjson.dumps(article | {"id": name}) if published % _BAD_EVERY else _BAD, name)
        if now_s >= next_look_s:
            next_look_s = now_s + _SAMPLE_EVERY_S
            size_mib = worker.memory_info().rss / 2**20
            if now_s >= warm_up_s:
                samples.append(size_mib)
            if len(samples) % 30 == 1:
                _say(f"{now_s / 60:.1f} min: {size_mib:.0f} MiB, {reader.lag(topics.input)} articles behind")
        while (early_s := published / rate - (time.monotonic() - began_s)) > 0:
            producer.poll(early_s)  # may return early, with the first event
    producer.flush(30)
    return samples


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    typer.run(main)
