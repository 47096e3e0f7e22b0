"""A real worker under load on a real broker, and a Prometheus that scrapes it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from urllib.request import urlopen

from confluent_kafka import Producer

from deploy.monitoring.generator.files import ALERTS, RECORDING
from deploy.monitoring.generator.prometheus import Prometheus
from tools.bench.load import articles
from tools.demo.__main__ import enricher, own_topics
from tools.kafka import Cluster
from tools.waiting import stop

RULES = (RECORDING, ALERTS)
_ADDRESS = re.compile(r"http://([\w.]+:\d+)")
_START_S = 120.0
_FLUSH_S = 20.0
_LOOK_EVERY_S = 0.1
_ANSWER_S = 5.0
_BURST, _BURST_EVERY_S = 20, 0.5
"""About what one core can do with headlines."""
_AHEAD = 100
"""No more is published while so many inputs are not committed: a worker on a busy machine gets no backlog."""
_POOL = 500
_BAD, _BAD_EVERY = b'{"id": 1}', 50
"""One input in 50 is no article: dead letters are part of the load."""


@dataclass(slots=True)
class Feed:
    """What has been published to the input topic so far."""

    sent: int = 0


@contextmanager
def under_load() -> Iterator[Prometheus]:
    """A Prometheus with our rules, a worker under load, and a broker and topics of their own."""
    with Cluster(nodes=1) as cluster, own_topics(cluster.bootstrap_servers) as topics:
        environment = topics.variables()
        enricher(["topics", "create"], environment)
        with worker(environment) as address, Prometheus(address, RULES) as prometheus, feeding(environment, address):
            yield prometheus


def published(address: str) -> int:
    """How many inputs the worker at this address has committed; 0 before it is connected, or if it does not answer."""
    try:
        with urlopen(f"http://{address}/status.json?since={time.time()}", timeout=_ANSWER_S) as answer:
            return int(json.load(answer).get("totals", {}).get("published", 0))
    except OSError:
        return 0


@contextmanager
def feeding(environment: Mapping[str, str], address: str) -> Iterator[Feed]:
    """Publish headlines, and some inputs that are no articles, no faster than the worker at `address` commits them."""
    feed, ended = Feed(), threading.Event()
    thread = threading.Thread(target=_feed, args=(environment, address, feed, ended), name="feed", daemon=True)
    thread.start()
    try:
        yield feed
    finally:
        ended.set()
        thread.join()


def _feed(environment: Mapping[str, str], address: str, feed: Feed, ended: threading.Event) -> None:
    topic = environment["ENRICHER_KAFKA__INPUT_TOPIC"]
    producer = Producer({"bootstrap.servers": environment["ENRICHER_KAFKA__BOOTSTRAP_SERVERS"], "log_level": 0})
    inputs = enumerate(cycle(articles("headlines", _POOL)))
    while not ended.wait(_BURST_EVERY_S):
        if feed.sent - published(address) > _AHEAD:
            continue
        for _ in range(_BURST):
            number, article = next(inputs)
            producer.produce(topic, _BAD if number % _BAD_EVERY == 0 else article, str(number))
        producer.flush(_FLUSH_S)
        feed.sent += _BURST


@contextmanager
def worker(environment: Mapping[str, str]) -> Iterator[str]:
    """Run `enricher run`, and yield the address at which it serves its health."""
    with tempfile.TemporaryDirectory(prefix="enricher-worker-") as folder:
        log = Path(folder) / "log"
        with log.open("wb") as output:
            command = [sys.executable, "-m", "enricher", "run"]
            process = subprocess.Popen(command, env={**os.environ, **environment}, stderr=output, stdout=output)
        try:
            yield _address(process, log)
        finally:
            stop(process)


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    """Read the address from the log: the worker takes any free port if the usual one is taken."""
    deadline_s = time.monotonic() + _START_S
    while True:
        written = log.read_text("utf-8", "replace")
        if told := _ADDRESS.search(written):
            return told[1]
        if process.poll() is not None or time.monotonic() > deadline_s:
            message = f"the worker does not say where it serves its metrics:\n{written[-2_000:]}"
            raise RuntimeError(message)
        time.sleep(_LOOK_EVERY_S)
