"""Runs a worker under load and takes screenshots of its status page: light, dark, and on a phone."""

from __future__ import annotations

import math
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from confluent_kafka import Producer

from tools import enricher_command
from tools.bench.load import endless_load
from tools.kafka import Cluster
from tools.ports import free_ports
from tools.status_page.browser import Browser, chromium

NAME = "enricher-0"
BAD_EVERY = 300
"""One input in this many is invalid."""
SWING, SWING_S = 0.6, 150.0
"""The load varies by this share, in waves of this length: a constant load would show little."""
PICTURES = {"light": (1240, False), "dark": (1240, True), "phone": (390, False)}


def main(
    out: Annotated[Path, typer.Option(help="Folder for status-light.png, status-dark.png and status-phone.png.")],
    minutes: Annotated[float, typer.Option(help="Minutes of load before the screenshots; charts show 15.")] = 5.0,
    rate: Annotated[float, typer.Option(help="Articles per second, on average.")] = 40.0,
) -> None:
    """Take screenshots of the status page of a real worker under load."""
    program = chromium()
    if program is None:
        raise SystemExit("no Chromium on this machine (Debian: apt install chromium)")
    (port,) = free_ports(1)
    with Cluster(nodes=1) as cluster, _worker(cluster, port), _load(cluster, rate):
        time.sleep(60 * minutes)
        with Browser(program) as browser:
            _pictures(browser, f"http://127.0.0.1:{port}/", out)


def _pictures(browser: Browser, url: str, out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    browser.size(1240)
    browser.open(url)
    browser.until(lambda: browser.value("document.title").startswith(NAME), "the page has its numbers")
    for name, (width, dark) in PICTURES.items():
        browser.size(width, dark=dark)
        browser.until(lambda width=width: browser.value("innerWidth") == width, "the window has its size")  # type: ignore[misc]
        browser.until(lambda: browser.value("document.getAnimations().length") == 0, "colours have changed")
        picture = out / f"status-{name}.png"
        picture.write_bytes(browser.picture())
        sys.stderr.write(f"{picture}: {picture.stat().st_size / 1000:.0f} kB\n")


@contextmanager
def _worker(cluster: Cluster, port: int) -> Iterator[None]:
    environment = {
        "ENRICHER_KAFKA__BOOTSTRAP_SERVERS": cluster.bootstrap_servers,
        "ENRICHER_KAFKA__INSTANCE": NAME,
        "ENRICHER_HEALTH__PORT": str(port),
    }
    enricher_command.start("topics", "create", variables=environment).wait()
    with enricher_command.running("--quiet", "run", variables=environment):
        yield


@contextmanager
def _load(cluster: Cluster, rate: float) -> Iterator[None]:
    over = threading.Event()
    thread = threading.Thread(target=_publish, args=(cluster, rate, over), name="load", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _publish(cluster: Cluster, rate: float, over: threading.Event) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 20})
    began_s = due_s = time.monotonic()
    for key, value in endless_load("headlines", bad_every=BAD_EVERY):
        now_s = time.monotonic()
        due_s += 1 / (rate * (1 + SWING * math.sin(2 * math.pi * (now_s - began_s) / SWING_S)))
        producer.produce("articles", value, key)
        producer.poll(0)
        if over.wait(max(0.0, due_s - now_s)):
            break
    producer.flush(30)


if __name__ == "__main__":
    typer.run(main)
