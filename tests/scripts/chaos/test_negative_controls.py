"""Negative controls: late requests of a transaction do harm where the worker keeps its producer, and the verifier finds it.

The same drive, once against a worker that goes on with the producer it has, once against the worker as it is. All of them
at once: most of each is waiting.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from kafka.harness import as_sent, committed_and_ends, publish, read_all, short_articles
from support.topics import make_topics

from enricher.app import kafka_config
from enricher.kafka.client import KafkaConfig
from enricher.settings import Settings
from enricher.verify import Check, Report, verify, watching
from tools.chaos.crew import Crew
from tools.chaos.flaws import PAUSE_BY_BACKOFF, SAME_PRODUCER
from tools.chaos.frames import Api
from tools.chaos.proxy import Proxy
from tools.chaos.rules import Answered, Hold, Match, Rule
from tools.chaos.scene import settings_of
from tools.chaos.topics import Names
from tools.chaos.waiting import wait_until
from tools.kafka import Cluster

pytestmark = pytest.mark.broker

TIMEOUT_S, LOOK_S = 40.0, 0.02
LATE_END, LATE_OFFSETS, LATE_END_CAPPED = "late-end", "late-offsets", "late-end-capped"
CASES = [(late, kept) for late in (LATE_END, LATE_OFFSETS, LATE_END_CAPPED) for kept in (True, False)]
"""Which request is late, and whether the worker keeps its producer."""
KEEPING = {LATE_END: SAME_PRODUCER, LATE_OFFSETS: SAME_PRODUCER, LATE_END_CAPPED: PAUSE_BY_BACKOFF}
"""Why it does."""
CAPPED = {"retry.backoff.ms": 20_000, "producer.retry.backoff.max.ms": 100}
"""The client sends again after the smaller one: after 0.1 s, not after the 16 s that the backoff alone would be."""


class Drive:
    """A worker behind the proxy that reads one partition, and what is done to it."""

    def __init__(self, proxy: Proxy, cluster: Cluster, worker: str) -> None:
        self.worker = worker
        topics = make_topics(cluster.bootstrap_servers, partitions=1)
        self.names = Names(topics.input, topics.output, topics.dead_letters, topics.group)
        self.proxy = proxy
        self._servers = cluster.bootstrap_servers
        self._published = 0
        self._rules: list[Rule] = []

    @property
    def config(self) -> KafkaConfig:
        """Of clients past the proxy."""
        return kafka_config(Settings(**settings_of(self._servers, self.names, self.worker)))

    def publish(self, count: int) -> None:
        """So many articles."""
        publish(self._servers, self.names.input, map(as_sent, short_articles(count, seed=self._published)))
        self._published += count

    def apply(self, rule: Rule) -> None:
        """A rule for this worker."""
        self._rules.append(rule)
        self.proxy.apply(rule)

    def lift_all(self) -> None:
        """No rule for this worker is left."""
        self.proxy.lift(*self._rules)

    def publish_until_caught(self, rule: Rule, count: int) -> None:
        """So many articles, and wait until the rule has caught what comes of them."""
        self.apply(rule)
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
        return Match({api}, f"enricher-{self.worker}")

    def hold_one(self, api: Api) -> Hold:
        """Publish an article and hold that request of its transaction; the worker sends it again and goes on."""
        held = Hold(self.match(api), hang_up=True)
        self.publish_until_caught(held, 1)
        self.wait_until_committed()
        return held

    def let_go(self, held: Hold, api: Api) -> None:
        """Let the late request through, and wait until the broker has answered it."""
        self.apply(answered := Answered(self.match(api)))
        self.proxy.lift(held)
        assert answered.caught.wait(TIMEOUT_S)


@contextmanager
def driven(
    shared: tuple[Proxy, Cluster], folder: Path, worker: str, flaws: Sequence[str], properties: Mapping[str, int]
) -> Iterator[Drive]:
    """A worker that has published one article, and rests."""
    proxy, cluster = shared
    drive = Drive(proxy, cluster, worker)
    settings = settings_of(proxy.addresses, drive.names, worker)
    # Every record a request of its own, so that one can be held while another has arrived.
    settings["kafka"]["properties"]["producer.batch.num.messages"] = 1
    settings["kafka"]["properties"].update(properties)
    with Crew([], lambda _: settings, folder) as crew:
        crew.add(worker, flaws)
        drive.publish(1)
        drive.wait_until_committed()
        try:
            yield drive
        finally:
            drive.lift_all()
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


@dataclass(frozen=True, slots=True)
class Story:
    """What the verifier found in the end, and what it saw of the committed offsets meanwhile."""

    report: Report
    went_back: Check


def ended_late(drive: Drive, *, kept: bool) -> Report:
    """Until everything is committed. With the producer kept, the half that the late request committed is seen first."""
    rest = late_end_txn(drive)
    if kept:
        drive.wait_until_written(3, "read_committed")
    drive.proxy.lift(rest)
    drive.wait_until_committed()
    return verify(drive.config)


def offsets_late(drive: Drive, went_back: Check, *, kept: bool) -> Report:
    """Until everything is committed; with the producer kept, until the offset was seen to go back."""
    late_offsets(drive)
    if kept:
        assert wait_until(lambda: went_back.failed > 0, TIMEOUT_S)
    else:
        drive.wait_until_committed()
    return verify(drive.config)


def told(shared: tuple[Proxy, Cluster], folder: Path, late: str, *, kept: bool) -> Story:
    """One drive, from the first article to the verifier."""
    worker, flaws = f"{late}-{'kept' if kept else 'new'}", [KEEPING[late]] if kept else []
    properties = CAPPED if late == LATE_END_CAPPED else {}
    with driven(shared, folder, worker, flaws, properties) as drive, watching(drive.config) as went_back:
        report = offsets_late(drive, went_back, kept=kept) if late == LATE_OFFSETS else ended_late(drive, kept=kept)
    return Story(report, went_back)


Stories = Mapping[tuple[str, bool], Future[Story]]


@pytest.fixture(scope="module")
def stories(shared_proxy: tuple[Proxy, Cluster], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stories]:
    """Every case."""
    folder = tmp_path_factory.mktemp("workers")
    with ThreadPoolExecutor(len(CASES)) as pool:
        yield {case: pool.submit(told, shared_proxy, folder, case[0], kept=case[1]) for case in CASES}


def test_late_end_txn_doubles_a_record_without_a_new_producer(stories: Stories) -> None:
    """KAFKA-17754: it commits what is written of the next transaction, whose offsets are not; that is written again."""
    report = stories[LATE_END, True].result().report
    assert ["doubled"] == report.failed
    assert [1] == [check.failed for check in report.checks if check.name == "doubled"]


def test_late_end_txn_does_nothing_after_a_new_producer(stories: Stories) -> None:
    """It is of an older epoch, and refused."""
    assert [] == stories[LATE_END, False].result().report.failed


def test_late_end_txn_doubles_a_record_where_the_pause_is_taken_from_the_backoff_alone(stories: Stories) -> None:
    """A maximum below the backoff has the request sent again in a call that is not slow by the backoff."""
    assert ["doubled"] == stories[LATE_END_CAPPED, True].result().report.failed


def test_late_end_txn_does_nothing_where_the_pause_is_the_shortest_of_any_retry(stories: Stories) -> None:
    """With the same properties, the worker as it is replaces its producer."""
    assert [] == stories[LATE_END_CAPPED, False].result().report.failed


def test_late_offsets_take_the_group_back_without_a_new_producer(stories: Stories) -> None:
    """The committed offset is seen to go back, and what is published lies ahead of it: a successor doubles it all."""
    story = stories[LATE_OFFSETS, True].result()
    assert ["published ahead"] == story.report.failed
    assert [2] == [place.offset for place in story.went_back.examples]


def test_late_offsets_do_nothing_after_a_new_producer(stories: Stories) -> None:
    """They are of an older epoch, and refused."""
    story = stories[LATE_OFFSETS, False].result()
    assert [] == story.report.failed
    assert story.went_back.checked > 0
    assert story.went_back.failed == 0
