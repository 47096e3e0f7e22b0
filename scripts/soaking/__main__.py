"""Runs the worker under load, samples it, and writes a picture and the figures."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from typing import Annotated, Any

import orjson
import psutil
import typer
from confluent_kafka import Consumer, Producer, TopicPartition
from rich.console import Console

from benchmark.bench import Bench, Topics
from benchmark.drawing import save_png
from benchmark.load import articles
from benchmark.machine import describe
from benchmark.outcome import Plot, Series
from soaking.samples import LIMIT, Growth, Sample

BAD = b'{"id": 1}'
BAD_SHARE = 50
"""One input of so many is no article, so that dead letters are part of the load."""
SAMPLE_EVERY_S = 2.0
POOL = 2_000
"""Different articles, published in turn under ids of their own."""


def main(
    minutes: Annotated[float, typer.Option(help="How long to sample, after warming up.")] = 30.0,
    warm_up_minutes: Annotated[float, typer.Option(help="Load before the first sample counts.")] = 5.0,
    rate: Annotated[float, typer.Option(help="Articles per second.")] = 50.0,
    mix: Annotated[str, typer.Option(help="Their lengths: headlines, news, long, mixed.")] = "headlines",
    out: Annotated[Path | None, typer.Option(help="Folder for memory.png and soak.json.")] = None,
) -> None:
    """One worker under steady load, and whether its resident size stays flat."""
    logging.basicConfig(level=logging.ERROR)
    console = Console(stderr=True, highlight=False)
    bench = Bench(1, quick=False, say=console.print)
    with bench.closing, bench.topics(articles("headlines", 1)) as topics, _worker(bench, topics) as worker:
        samples = _samples(bench, topics, worker, rate, _pool(mix), 60 * warm_up_minutes, 60 * minutes, console)
    growth = Growth.of(samples)
    Console(highlight=False).print(
        f"{len(samples)} samples over {minutes:g} min at {rate:g} {mix}/s, {samples[-1].published} published: "
        f"{growth.start_bytes / 2**20:.0f} MiB after warm-up, {growth.end_bytes / 2**20:.0f} MiB at the end, "
        f"{100 * growth.share:+.1f} % (limit {100 * LIMIT:.0f} %): {'flat' if growth.flat else 'NOT FLAT'}"
    )
    if out:
        _write(out, samples, growth, {"minutes": minutes, "articles_per_s": rate, "mix": mix})
    sys.exit(0 if growth.flat else 1)


def _pool(mix: str) -> list[dict[str, Any]]:
    return [orjson.loads(value) for value in articles(mix, POOL)]  # type: ignore[arg-type]


@contextmanager
def _worker(bench: Bench, topics: Topics) -> Iterator[psutil.Process]:
    kafka = bench.settings_for(topics).kafka
    names = ("bootstrap_servers", "group_id", "instance", "input_topic", "output_topic", "dead_letter_topic")
    environment = {f"ENRICHER_KAFKA__{name.upper()}": str(getattr(kafka, name)) for name in names}
    process = subprocess.Popen(
        [sys.executable, "-m", "enricher", "run", "--report-every-s", "60"],
        env=os.environ | environment,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield psutil.Process(process.pid)
        process.terminate()
        if code := process.wait(60):
            raise SystemExit(f"the worker ended with code {code}")
    finally:
        process.kill()
        process.wait()


def _samples(
    bench: Bench,
    topics: Topics,
    worker: psutil.Process,
    rate: float,
    pool: list[dict[str, Any]],
    warm_up_s: float,
    span_s: float,
    console: Console,
) -> list[Sample]:
    """Publish steadily, look at the worker now and then. Raises SystemExit where it falls behind or ends."""
    producer = Producer({"bootstrap.servers": bench.cluster.bootstrap_servers, "linger.ms": 20})
    began_s, samples, next_look_s = time.monotonic(), list[Sample](), 0.0
    for published, article in enumerate(cycle(pool)):
        now_s = time.monotonic() - began_s
        if now_s > warm_up_s + span_s:
            break
        bad = published % BAD_SHARE == 0
        name = f"soak-{published}"
        producer.produce(topics.input, BAD if bad else orjson.dumps(article | {"id": name}), name.encode())
        if now_s >= next_look_s:
            next_look_s = now_s + SAMPLE_EVERY_S
            if now_s >= warm_up_s:
                samples.append(Sample(now_s - warm_up_s, worker.memory_info().rss, published))
            if len(samples) % 30 == 1:
                console.print(f"{now_s / 60:.1f} min: {worker.memory_info().rss / 2**20:.0f} MiB")
        while (early_s := published / rate - (time.monotonic() - began_s)) > 0:
            producer.poll(early_s)  # which returns with the first thing that happens
    producer.flush(30)
    _check_caught_up(bench, topics)
    return samples


def _check_caught_up(bench: Bench, topics: Topics, within_s: float = 60.0) -> None:
    """A worker that fell behind would have shown the memory of a full queue, not of steady work."""
    servers = {"bootstrap.servers": bench.cluster.bootstrap_servers, "group.id": topics.name}
    consumer, deadline_s = Consumer(servers), time.monotonic() + within_s
    partitions = [
        TopicPartition(topics.input, n) for n in consumer.list_topics(topics.input).topics[topics.input].partitions
    ]
    ends = {tp.partition: consumer.get_watermark_offsets(tp)[1] for tp in partitions}
    while any(tp.offset < ends[tp.partition] for tp in consumer.committed(partitions, timeout=10)):
        if time.monotonic() > deadline_s:
            raise SystemExit("the worker fell behind: use a lower --rate")
        time.sleep(0.5)
    consumer.close()


def _write(folder: Path, samples: list[Sample], growth: Growth, load: dict[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    minutes, sizes = [s.at_s / 60 for s in samples], [s.resident_bytes / 2**20 for s in samples]
    limit = ("5 % above the start", growth.start_bytes * (1 + LIMIT) / 2**20)
    series = [Series("resident", minutes, sizes)]
    save_png(Plot("memory", "Memory of one worker", "lines", "minutes", "MiB", series, limit), folder)
    figures = {
        "machine": describe(),
        **load,
        "published": samples[-1].published,
        "start_mib": growth.start_bytes / 2**20,
        "end_mib": growth.end_bytes / 2**20,
        "growth_share": growth.share,
        "resident_mib_each_minute": [round(size, 1) for size in sizes[:: max(1, int(60 / SAMPLE_EVERY_S))]],
    }
    (folder / "soak.json").write_bytes(orjson.dumps(figures, option=orjson.OPT_INDENT_2))


if __name__ == "__main__":
    typer.run(main)
