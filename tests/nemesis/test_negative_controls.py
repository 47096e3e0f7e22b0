"""Negative controls: late requests of a transaction do harm where the worker keeps its producer, and the verifier finds it.

The same drive, once against a worker that goes on with the producer it has, once against the worker as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from kafka.harness import as_sent, committed_and_ends, publish, read_all, short_articles
from support.topics import make_topics

from broker import Cluster
from enricher.app import kafka_config
from enricher.kafka.client import KafkaConfig
from enricher.settings import Settings
from enricher.verify import verify, watching
from nemesis.crew import Crew
from nemesis.flaws import SAME_PRODUCER
from nemesis.frames import Api
from nemesis.proxy import Proxy
from nemesis.rules import Answered, Hold, Match, Rule
from nemesis.scene import Names, settings_of, wait_until

pytestmark = pytest.mark.broker

TIMEOUT_S, LOOK_S = 40.0, 0.02
WORKER = "lonely"


class Drive:
    """A worker behind the proxy that reads one partition, and what is done to it."""

    def __init__(self, proxy: Proxy, cluster: Cluster) -> None:
        topics = make_topics(cluster.bootstrap_servers, partitions=1)
        self.names = Names(topics.input, topics.output, topics.dead_letters, topics.group)
        self.proxy = proxy
        self._servers = cluster.bootstrap_servers
        self._published = 0

    @property
    def config(self) -> KafkaConfig:
        """Of clients past the proxy."""
        return kafka_config(Settings(**settings_of(self._servers, self.names, WORKER)))

    def publish(self, count: int) -> None:
        """So many articles."""
        publish(self._servers, self.names.input, map(as_sent, short_articles(count, seed=self._published)))
        self._published += count

    def publish_until_caught(self, rule: Rule, count: int) -> None:
        """So many articles, and wait until the rule has caught what comes of them."""
        self.proxy.apply(rule)
        self.publish(count)
        assert rule.caught.wait(TIMEOUT_S)

    def wait_until_committed(self) -> None:
        """Until the group has committed all that was published."""
        asked = (self._servers, self.names.group, self.names.input)
        assert wait_until(lambda: committed_and_ends(*asked)[0][0] == self._published, TIMEOUT_S, LOOK_S)

    def wait_until_written(self, count: int, isolation: str) -> None:
        """Until so many outputs are seen."""
        asked = (self._servers, self.names.output, isolation)
        assert wait_until(lambda: len(read_all(*asked)) == count, TIMEOUT_S, LOOK_S)

    def match(self, api: Api) -> Match:
        """The worker's requests of that kind."""
        return Match({api}, f"enricher-{WORKER}")

    def hold_one(self, api: Api) -> Hold:
        """Publish an article and hold that request of its transaction; the worker sends it again and goes on."""
        held = Hold(self.match(api), hang_up=True)
        self.publish_until_caught(held, 1)
        self.wait_until_committed()
        return held

    def let_go(self, held: Hold, api: Api) -> None:
        """Let the late request through, and wait until the broker has answered it."""
        self.proxy.apply(answered := Answered(self.match(api)))
        self.proxy.lift(held)
        assert answered.caught.wait(TIMEOUT_S)


@contextmanager
def driven(shared: tuple[Proxy, Cluster], folder: Path, flaws: Sequence[str]) -> Iterator[Drive]:
    """A worker that has published one article, and rests."""
    proxy, cluster = shared
    drive = Drive(proxy, cluster)
    settings = settings_of(proxy.addresses, drive.names, WORKER)
    # Every record a request of its own, so that one can be held while another has arrived.
    settings["kafka"]["properties"]["producer.batch.num.messages"] = 1
    with Crew([], lambda _: settings, folder) as crew:
        crew.add(WORKER, flaws)
        drive.publish(1)
        drive.wait_until_committed()
        try:
            yield drive
        finally:
            proxy.lift_all()
        assert crew.exits == []


def late_end_txn(drive: Drive) -> Hold:
    """One transaction's EndTxn comes when the next one is written in part; what holds up the rest is returned."""
    held = drive.hold_one(Api.END_TXN)
    rest = Hold(drive.match(Api.PRODUCE), nth=2)
    drive.publish_until_caught(rest, 50)
    drive.wait_until_written(3, "read_uncommitted")
    drive.let_go(held, Api.END_TXN)
    return rest


def late_offsets(drive: Drive) -> None:
    """One transaction's TxnOffsetCommit comes in the next but one, after its own and before its end."""
    held = drive.hold_one(Api.TXN_OFFSET_COMMIT)
    drive.publish(20)
    drive.wait_until_committed()
    end = Hold(drive.match(Api.END_TXN))
    drive.publish_until_caught(end, 1)
    drive.let_go(held, Api.TXN_OFFSET_COMMIT)
    drive.proxy.lift(end)


def test_late_end_txn_doubles_a_record_without_a_new_producer(
    shared_proxy: tuple[Proxy, Cluster], tmp_path: Path
) -> None:
    """KAFKA-17754: it commits what is written of the next transaction, whose offsets are not; that is written again."""
    with driven(shared_proxy, tmp_path, [SAME_PRODUCER]) as drive:
        rest = late_end_txn(drive)
        drive.wait_until_written(3, "read_committed")
        drive.proxy.lift(rest)
        drive.wait_until_committed()
        report = verify(drive.config)
        assert ["doubled"] == report.failed
        assert [1] == [check.failed for check in report.checks if check.name == "doubled"]


def test_late_end_txn_does_nothing_after_a_new_producer(shared_proxy: tuple[Proxy, Cluster], tmp_path: Path) -> None:
    """It is of an older epoch, and refused."""
    with driven(shared_proxy, tmp_path, []) as drive:
        drive.proxy.lift(late_end_txn(drive))
        drive.wait_until_committed()
        assert [] == verify(drive.config).failed


def test_late_offsets_take_the_group_back_without_a_new_producer(
    shared_proxy: tuple[Proxy, Cluster], tmp_path: Path
) -> None:
    """The committed offset is seen to go back, and what is published lies ahead of it: a successor doubles it all."""
    with driven(shared_proxy, tmp_path, [SAME_PRODUCER]) as drive, watching(drive.config) as went_back:
        late_offsets(drive)
        assert wait_until(lambda: went_back.failed > 0, TIMEOUT_S)
        assert ["published ahead"] == verify(drive.config).failed
    assert [2] == [place.offset for place in went_back.examples]


def test_late_offsets_do_nothing_after_a_new_producer(shared_proxy: tuple[Proxy, Cluster], tmp_path: Path) -> None:
    """They are of an older epoch, and refused."""
    with driven(shared_proxy, tmp_path, []) as drive:
        with watching(drive.config) as went_back:
            late_offsets(drive)
            drive.wait_until_committed()
            assert [] == verify(drive.config).failed
        assert went_back.checked > 0
        assert went_back.failed == 0
