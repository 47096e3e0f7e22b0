"""A real worker under load on a real broker, and a Prometheus that scrapes it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path

from confluent_kafka import Producer

from deploy.monitoring.generator.files import ALERTS, RECORDING
from deploy.monitoring.generator.prometheus import Prometheus
from tools.bench.load import articles
from tools.demo.commands import enricher
from tools.demo.topics import own_topics
from tools.kafka import Cluster

RULES = (RECORDING, ALERTS)
_ADDRESS = re.compile(r"http://([\w.]+:\d+)")
_START_S = 120.0
_STOP_S = 20.0
_LOOK_EVERY_S = 0.1
_BURST, _BURST_EVERY_S = 20, 0.5
"""About what one core can do with headlines: it is busy, and does not fall behind by much."""
_POOL = 500
_BAD, _BAD_EVERY = b'{"id": 1}', 50
"""One input in so many is no article: dead letters are part of the load."""


@contextmanager
def under_load() -> Iterator[Prometheus]:
    """All of it, with a broker and topics of its own."""
    with Cluster(nodes=1) as cluster, own_topics(cluster.bootstrap_servers) as environment:
        enricher(["topics", "create"], environment)
        with watched(environment) as prometheus:
            yield prometheus


@contextmanager
def watched(environment: Mapping[str, str], rules: Sequence[Path] = RULES) -> Iterator[Prometheus]:
    """A worker with these settings, whose input topic is fed all the while, and a Prometheus with these rules."""
    with feeding(environment), _worker(environment) as address, Prometheus(address, rules) as prometheus:
        yield prometheus


@contextmanager
def feeding(environment: Mapping[str, str]) -> Iterator[None]:
    """Publish headlines, and now and then what is no article, until the end."""
    ended = threading.Event()
    thread = threading.Thread(target=_feed, args=(environment, ended), name="feed", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _feed(environment: Mapping[str, str], ended: threading.Event) -> None:
    topic = environment["ENRICHER_KAFKA__INPUT_TOPIC"]
    producer = Producer({"bootstrap.servers": environment["ENRICHER_KAFKA__BOOTSTRAP_SERVERS"], "log_level": 0})
    inputs = enumerate(cycle(articles("headlines", _POOL)))
    while not ended.wait(_BURST_EVERY_S):
        for _ in range(_BURST):
            number, article = next(inputs)
            producer.produce(topic, _BAD if number % _BAD_EVERY == 0 else article, str(number))
        producer.poll(0)
    producer.purge()
    producer.flush(_STOP_S)


@contextmanager
def _worker(environment: Mapping[str, str]) -> Iterator[str]:
    """`enricher run`; the address at which it serves its metrics."""
    with tempfile.TemporaryDirectory(prefix="enricher-worker-") as folder:
        log = Path(folder) / "log"
        with log.open("wb") as output:
            command = [sys.executable, "-m", "enricher", "run"]
            process = subprocess.Popen(command, env={**os.environ, **environment}, stderr=output, stdout=output)
        try:
            yield _address(process, log)
        finally:
            process.terminate()
            try:
                process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    """It takes a free port where the usual one is taken, and says which."""
    deadline_s = time.monotonic() + _START_S
    while True:
        written = log.read_text("utf-8", "replace")
        if told := _ADDRESS.search(written):
            return told[1]
        if process.poll() is not None or time.monotonic() > deadline_s:
            message = f"the worker does not say where it serves its metrics:\n{written[-2_000:]}"
            raise RuntimeError(message)
        time.sleep(_LOOK_EVERY_S)
