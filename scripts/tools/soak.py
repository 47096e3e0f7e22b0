"""`scripts/soak`: runs one worker under steady load, samples its memory, and judges and draws the growth."""

from __future__ import annotations

import logging
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import psutil
import typer
from confluent_kafka import Producer
from rich.console import Console

from tools import enricher_command
from tools.bench.bench import Bench
from tools.bench.drawing import save_png
from tools.bench.load import articles, endless_load
from tools.bench.outcome import Plot, Series
from tools.reading import Reader
from tools.topics import Topics
from tools.waiting import wait_until

LIMIT = 0.05
"""Largest growth from warm-up to the end; with more, a worker would need restarts before its node does."""
_SPAN = 0.1
"""Start and end are medians over this share of the time, since single samples include temporary buffers."""
BAD_EVERY = 50
"""One input in this many is invalid."""
SAMPLE_EVERY_S = 2.0
CATCH_UP_S = 60.0
"""How long the worker may lag after the last article."""
_RUN = ("run", "--report-every-s", "60")


@dataclass(frozen=True, slots=True)
class Sample:
    """One sample: seconds since warm-up, resident bytes, articles published so far."""

    at_s: float
    resident_bytes: int
    published: int


@dataclass(frozen=True, slots=True)
class Growth:
    """Resident size just after warm-up and at the end, in bytes."""

    start_bytes: float
    end_bytes: float

    @classmethod
    def of(cls, samples: Sequence[Sample]) -> Growth:
        """From at least ten samples in order of time."""
        assert len(samples) >= 10, "too few samples to speak of growth"
        span = max(1, int(len(samples) * _SPAN))
        sizes = [sample.resident_bytes for sample in samples]
        return cls(statistics.median(sizes[:span]), statistics.median(sizes[-span:]))

    @property
    def share(self) -> float:
        """Growth as a share of the initial size; negative if it shrank."""
        return self.end_bytes / self.start_bytes - 1

    @property
    def flat(self) -> bool:
        return self.share < LIMIT


def main(
    *,
    minutes: Annotated[float, typer.Option(help="Minutes of sampling, after the warm-up.")] = 30.0,
    warm_up_minutes: Annotated[float, typer.Option(help="Minutes of load before sampling starts.")] = 5.0,
    rate: Annotated[float, typer.Option(help="Articles per second.")] = 50.0,
    mix: Annotated[str, typer.Option(help="Length mix of the articles: headlines, news, long or mixed.")] = "headlines",
    out: Annotated[Path | None, typer.Option(help="Folder for memory.png.")] = None,
) -> None:
    """Run one worker under steady load and check that its resident size stays flat."""
    logging.basicConfig(level=logging.ERROR)
    console = Console(stderr=True, highlight=False)
    bench = Bench(1, quick=False, say=console.print)
    with (
        bench.closing,
        bench.topics(articles("headlines", 1)) as topics,
        enricher_command.running(*_RUN, variables=topics.variables("soak-0"), stderr=subprocess.DEVNULL) as worker,
    ):
        reader, process = Reader(topics.bootstrap_servers, topics.group), psutil.Process(worker.pid)
        load = endless_load(mix, bad_every=BAD_EVERY)  # type: ignore[arg-type]
        samples = _samples(topics, reader, process, rate, load, 60 * warm_up_minutes, 60 * minutes, console)
        wait_until(lambda: reader.lag(topics.input) == 0, CATCH_UP_S, 0.5)
        behind = reader.lag(topics.input)
    growth = Growth.of(samples)
    Console(highlight=False).print(
        f"{len(samples)} samples over {minutes:g} min at {rate:g} {mix}/s, {samples[-1].published} published: "
        f"{growth.start_bytes / 2**20:.0f} MiB after warm-up, {growth.end_bytes / 2**20:.0f} MiB at the end, "
        f"{100 * growth.share:+.1f} % (limit {100 * LIMIT:.0f} %): {'flat' if growth.flat else 'NOT FLAT'}"
    )
    if behind:
        console.print(f"but {behind} articles behind: the load was too high; use a lower --rate")
    if out:
        _draw(out, samples, growth)
    sys.exit(0 if growth.flat and not behind else 1)


def _samples(
    topics: Topics,
    reader: Reader,
    worker: psutil.Process,
    rate: float,
    load: Iterator[tuple[bytes, bytes]],
    warm_up_s: float,
    span_s: float,
    console: Console,
) -> list[Sample]:
    """Publish steadily and sample the worker periodically."""
    producer = Producer({"bootstrap.servers": topics.bootstrap_servers, "linger.ms": 20})
    console.print(f"warming up for {warm_up_s / 60:g} min, then {span_s / 60:g} min of samples")
    began_s, samples, next_look_s = time.monotonic(), list[Sample](), 0.0
    for published, (key, value) in enumerate(load):
        now_s = time.monotonic() - began_s
        if now_s > warm_up_s + span_s:
            break
        producer.produce(topics.input, value, key)
        if now_s >= next_look_s:
            next_look_s = now_s + SAMPLE_EVERY_S
            if now_s >= warm_up_s:
                samples.append(Sample(now_s - warm_up_s, worker.memory_info().rss, published))
            if len(samples) % 30 == 1:
                size_mib, behind = worker.memory_info().rss / 2**20, reader.lag(topics.input)
                console.print(f"{now_s / 60:.1f} min: {size_mib:.0f} MiB, {behind} articles behind")
        while (early_s := published / rate - (time.monotonic() - began_s)) > 0:
            producer.poll(early_s)  # may return early, with the first event
    producer.flush(30)
    return samples


def _draw(folder: Path, samples: list[Sample], growth: Growth) -> None:
    minutes, sizes = [s.at_s / 60 for s in samples], [s.resident_bytes / 2**20 for s in samples]
    limit = ("5 % above the start", growth.start_bytes * (1 + LIMIT) / 2**20)
    series = [Series("resident", minutes, sizes)]
    folder.mkdir(parents=True, exist_ok=True)
    save_png(Plot("memory", "Memory of one worker", "lines", "minutes", "MiB", series, limit), folder)


if __name__ == "__main__":
    typer.run(main)
