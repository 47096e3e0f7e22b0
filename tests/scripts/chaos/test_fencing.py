"""A fenced worker continues after its own late request or a timeout, and exits if a newer process has its name.

Brokers and late requests are real, and so are both processes of one name, which work under load side by side.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pytest
from confluent_kafka import KafkaException, Producer
from kafka.harness import as_sent, committed_and_ends, publish, short_articles
from support.proxied import nodes_behind_a_proxy
from support.topics import make_topics

from enricher.app.kafka import kafka_config
from enricher.settings import Settings
from enricher.verify import verify
from tools.chaos.frames import Api
from tools.chaos.proxy import Proxy
from tools.chaos.rules import Answered, Delay, Hold, Match
from tools.chaos.scene import TRANSACTION_S, settings_of
from tools.chaos.topics import Names
from tools.kafka import Cluster
from tools.waiting import wait_until

pytestmark = pytest.mark.broker

NAME = "worker-0"
OWN = "no newer process has this worker's name"
RIVAL = "a newer process has the name 'worker-0'"
TIMEOUT_S = 60.0
ENDS_S = 30.0
"""Within this time a process with a newer rival has ended: it looks for 5 s, and the machine may be busy."""
SLOW_S = 0.26 * TRANSACTION_S
"""Delay each way: four requests take twice a transaction's timeout, but no connection is idle for too long."""
# How often the broker looks for transactions that are too old; every 10 s by default.
QUICK_EXPIRY = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}


class Life:
    """One process of a worker, without restarts."""

    def __init__(self, settings: Mapping[str, Any], log: Path) -> None:
        self.log = log
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tools.chaos.worker"],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                cwd=log.parent,
            )
        assert self._process.stdin
        self._process.stdin.write(orjson.dumps(settings) + b"\n")
        self._process.stdin.flush()

    @property
    def code(self) -> int | None:
        """Its exit code; None while it runs."""
        return self._process.poll()

    def says(self, words: str) -> int:
        """How often its log contains this."""
        return self.log.read_text().count(words)

    def close(self) -> None:
        """End the process if it still runs."""
        self._process.terminate()
        try:
            self._process.wait(TIMEOUT_S)
        finally:
            self._process.kill()


@dataclass(slots=True)
class Field:
    """Fresh topics on the broker, and processes that enrich what is published there."""

    proxy: Proxy
    servers: str
    names: Names
    folder: Path
    lives: list[Life]
    published: int = 0

    def start(self, *, proxied: bool) -> Life:
        """Start a process named `NAME`; only a proxied one's requests can be held."""
        servers = self.proxy.addresses if proxied else self.servers
        life = Life(settings_of(servers, self.names, NAME), self.folder / f"{len(self.lives)}.log")
        self.lives.append(life)
        return life

    def publish(self, count: int) -> None:
        """Publish so many articles."""
        publish(self.servers, self.names.input, map(as_sent, short_articles(count, seed=self.published)))
        self.published += count

    def committed(self) -> int:
        """How many articles the group has committed; -1 while a fresh topic has no leader."""
        try:
            offsets = committed_and_ends(self.servers, self.names.group, self.names.input)
        except KafkaException:
            return -1
        return sum(max(0, committed) for committed, _ in offsets.values())

    def work(self, count: int) -> None:
        """Publish so many articles and wait until all are committed."""
        self.publish(count)
        self.wait_until_committed()

    def wait_until_committed(self) -> None:
        """Wait until the group has committed everything published."""
        assert wait_until(lambda: self.committed() == self.published, TIMEOUT_S), self.logs()

    def match(self, *apis: Api) -> Match:
        """Match requests of these kinds by proxied processes."""
        return Match(apis, f"enricher-{NAME}")

    def failed(self) -> Sequence[str]:
        """The checks of the verifier that fail."""
        return verify(kafka_config(Settings(**settings_of(self.servers, self.names, NAME)))).failed

    def logs(self) -> str:
        """The logs of all processes."""
        return "\n----\n".join(life.log.read_text() for life in self.lives)

    @contextmanager
    def load(self) -> Iterator[threading.Event]:
        """Publish continuously; the yielded event is set at the end."""
        over = threading.Event()

        def feed() -> None:
            while not over.wait(0.3):
                self.publish(8)

        thread = threading.Thread(target=feed, name="load", daemon=True)
        thread.start()
        try:
            yield over
        finally:
            over.set()
            thread.join()


@pytest.fixture(scope="module")
def world() -> Iterator[tuple[Proxy, Cluster]]:
    """A broker behind a proxy, which soon aborts transactions that are too old."""
    with nodes_behind_a_proxy(1, properties=QUICK_EXPIRY) as shared:
        yield shared


@pytest.fixture
def field(world: tuple[Proxy, Cluster], tmp_path: Path) -> Iterator[Field]:
    """Fresh topics; processes and rules end with the test."""
    proxy, cluster = world
    topics = make_topics(cluster.bootstrap_servers)
    names = Names(topics.input, topics.output, topics.dead_letters, topics.group)
    field = Field(proxy, cluster.bootstrap_servers, names, tmp_path, [])
    try:
        yield field
    finally:
        proxy.lift_all()
        for life in field.lives:
            life.close()


def let_go(field: Field, held: Hold) -> None:
    """Release the late request, and wait until the broker has answered it."""
    field.proxy.apply(answered := Answered(field.match(Api.INIT_PRODUCER_ID)))
    field.proxy.lift(held)
    assert answered.caught.wait(TIMEOUT_S)


def check_goes_on(field: Field, life: Life) -> None:
    """Check that the worker was fenced, found no rival, and enriched everything exactly once."""
    assert life.says(OWN) == 1, field.logs()
    assert life.code is None, field.logs()
    assert [] == field.failed()


def test_a_late_request_for_a_producer_s_id_fences_and_the_worker_goes_on(field: Field) -> None:
    """A repeated request's first copy arrives when the worker is already working, and makes its own epoch an old one."""
    field.proxy.apply(held := Hold(field.match(Api.INIT_PRODUCER_ID), hang_up=True))
    life = field.start(proxied=True)
    field.work(5)
    assert held.caught.is_set()
    let_go(field, held)
    field.work(5)
    check_goes_on(field, life)


def test_a_transaction_that_the_broker_gave_up_fences_and_the_worker_goes_on(field: Field) -> None:
    """Each request is answered in time, but together they exceed the timeout, and the broker takes the epoch away."""
    life = field.start(proxied=True)
    field.work(5)
    apis = (Api.PRODUCE, Api.ADD_OFFSETS_TO_TXN, Api.TXN_OFFSET_COMMIT, Api.END_TXN)
    field.proxy.apply(slow := Delay(field.match(*apis), SLOW_S))
    field.publish(5)
    assert wait_until(lambda: life.says("recovering: ") > 0, TIMEOUT_S)
    field.proxy.lift(slow)
    field.wait_until_committed()
    check_goes_on(field, life)


def test_a_stranger_with_the_worker_s_id_that_is_no_member_fences_and_the_worker_goes_on(field: Field) -> None:
    """After a foreign script, or a newer process that died before it joined, nobody else would do the work."""
    life = field.start(proxied=False)
    field.work(5)
    stranger = Producer({"bootstrap.servers": field.servers, "transactional.id": f"{field.names.group}/{NAME}"})
    stranger.init_transactions(TIMEOUT_S)
    stranger.close()
    field.work(5)
    check_goes_on(field, life)


def newer(field: Field) -> None:
    """A second process starts while the first works."""
    field.start(proxied=False)
    field.work(20)
    field.start(proxied=False)


def together(field: Field) -> None:
    """Both processes start at the same time."""
    field.start(proxied=False)
    field.start(proxied=False)


def older_renews(field: Field) -> None:
    """The older process has slow transactions, so it renews its producer after each, and fences the newer one."""
    field.start(proxied=True)
    field.work(20)
    field.proxy.apply(Delay(field.match(Api.END_TXN), 0.15))
    field.start(proxied=False)


def both_fenced(field: Field) -> None:
    """The newer process's late request for its producer id arrives when both are members."""
    field.start(proxied=False)
    field.work(20)
    field.proxy.apply(held := Hold(field.match(Api.INIT_PRODUCER_ID), hang_up=True))
    newer = field.start(proxied=True)
    assert wait_until(lambda: newer.says("partitions assigned") > 0, TIMEOUT_S), field.logs()
    let_go(field, held)


@pytest.mark.parametrize(
    ("meeting", "load_s"), [(newer, 60.0), (together, 15.0), (older_renews, 15.0), (both_fenced, 15.0)]
)
def test_of_two_live_processes_of_one_name_one_goes_on(field: Field, meeting: Any, load_s: float) -> None:  # noqa: ANN401
    """One process exits with code 5 and names its rival; fencing stops, and everything is enriched once."""
    with field.load() as over:
        meeting(field)
        assert wait_until(lambda: any(life.code is not None for life in field.lives), ENDS_S), field.logs()
        over.wait(load_s)
    field.wait_until_committed()
    ended = [life for life in field.lives if life.code is not None]
    assert [5] == [life.code for life in ended], field.logs()
    assert ended[0].says(RIVAL) == 1
    assert sum(life.says("recovering: ") for life in field.lives) <= 4, field.logs()
    assert [] == field.failed()
