"""Negative controls: late requests do harm if the worker keeps its producer, and the verifier finds it.

Each scenario runs twice: with a worker that keeps its producer, and with the unmodified worker. All run in parallel, since
most of each is waiting.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.crews import forked
from support.doctored import names_of
from support.flaws import IN_BATCHES, PAUSE_BY_BACKOFF, SAME_PRODUCER
from support.lives import Job
from support.offset_watch import watching
from support.patience import PATIENCE_S
from support.reading import read_all
from support.topics import make_topics

from enricher.operate.verify.ledger import Check, Report
from enricher.operate.verify.verification import verify
from tools.chaos.crew import Crew
from tools.chaos.proxy import Proxy
from tools.chaos.rules import Api, Hold, Rule
from tools.chaos.scene import settings_of
from tools.kafka import Cluster
from tools.waiting import wait_until

pytestmark = pytest.mark.broker

LATE_END, LATE_OFFSETS, LATE_END_CAPPED = "late-end", "late-offsets", "late-end-capped"
CASES = [(late, kept) for late in (LATE_END, LATE_OFFSETS, LATE_END_CAPPED) for kept in (True, False)]
"""Which request is late, and whether the worker keeps its producer."""
KEEPING = {LATE_END: SAME_PRODUCER, LATE_OFFSETS: SAME_PRODUCER, LATE_END_CAPPED: PAUSE_BY_BACKOFF}
"""The flaw that makes the worker keep its producer."""
CAPPED = {"retry.backoff.ms": 20_000, "producer.retry.backoff.max.ms": 100}
"""The client retries after the smaller value: 0.1 s instead of the 16 s of the backoff alone."""


class Drive(Job):
    """A worker behind the proxy that reads one partition, and the steps of a scenario."""

    def __init__(self, proxy: Proxy, cluster: Cluster, worker: str) -> None:
        names = names_of(make_topics(cluster.bootstrap_servers, partitions=1))
        super().__init__(proxy, cluster.bootstrap_servers, names, worker)
        self._rules: list[Rule] = []

    def lift_all(self) -> None:
        """Lift all rules for this worker."""
        self.proxy.lift(*self._rules)

    def publish_until_caught(self, rule: Rule, count: int) -> None:
        """Publish articles, and wait until the rule has caught a request of theirs."""
        self._rules.append(rule)
        self.proxy.apply(rule)
        self.publish(count)
        assert rule.caught.wait(PATIENCE_S)

    def wait_until_written(self, count: int, isolation: str) -> None:
        """Wait until so many outputs are visible."""
        asked = (self.servers, self.names.output, isolation)
        assert wait_until(lambda: len(read_all(*asked)) == count, PATIENCE_S)

    def hold_one(self, api: Api) -> Hold:
        """Publish an article and hold that request of its transaction; the worker repeats it and continues."""
        held = Hold(self.match(api), hang_up=True)
        self.publish_until_caught(held, 1)
        self.wait_until_committed()
        return held


@contextmanager
def driven(
    shared: tuple[Proxy, Cluster], folder: Path, worker: str, flaws: Sequence[str], properties: Mapping[str, int]
) -> Iterator[Drive]:
    """A worker that has published one article and is idle."""
    proxy, cluster = shared
    drive = Drive(proxy, cluster, worker)
    settings = dict(settings_of(proxy.addresses, drive.names, worker))
    # One request per record, so that one can be held while another has arrived.
    settings["kafka"]["properties"]["producer.batch.num.messages"] = 1
    settings["kafka"]["properties"].update(properties)
    # All articles of a scenario's step go into one batch and one transaction, however low the load is, or the machine slow.
    settings["batching"] = {**settings.get("batching", {}), "max_wait_ms": 1000}
    with Crew([], lambda _: settings, folder, launch=forked) as crew:
        crew.add(worker, [*flaws, IN_BATCHES])
        drive.publish(1)
        drive.wait_until_committed()
        try:
            yield drive
        finally:
            drive.lift_all()
        assert crew.exits == []


def late_end_txn(drive: Drive) -> Hold:
    """A late EndTxn arrives when the next transaction is partly written; returns the rule that holds the rest."""
    held = drive.hold_one(Api.END_TXN)
    rest = Hold(drive.match(Api.PRODUCE), nth=2)
    drive.publish_until_caught(rest, 50)
    drive.wait_until_written(3, "read_uncommitted")
    drive.let_go(held, Api.END_TXN)
    return rest


def late_offsets(drive: Drive) -> None:
    """A late TxnOffsetCommit arrives two transactions later, after that one's own and before its end."""
    held = drive.hold_one(Api.TXN_OFFSET_COMMIT)
    drive.publish(20)
    drive.wait_until_committed()
    end = Hold(drive.match(Api.END_TXN))
    drive.publish_until_caught(end, 1)
    drive.let_go(held, Api.TXN_OFFSET_COMMIT)
    drive.proxy.lift(end)


@dataclass(frozen=True, slots=True)
class Observed:
    """The verifier's report, and the offsets that were seen to go back meanwhile."""

    report: Report
    went_back: Check


def ended_late(drive: Drive, *, kept: bool) -> Report:
    """Run the scenario. With the producer kept, the half that the late request committed becomes visible first."""
    rest = late_end_txn(drive)
    if kept:
        drive.wait_until_written(3, "read_committed")
    drive.proxy.lift(rest)
    drive.wait_until_committed()
    return verify(drive.config)


def offsets_late(drive: Drive, went_back: Check, *, kept: bool) -> Report:
    """Run the scenario. With the producer kept, the offset is seen to go back."""
    late_offsets(drive)
    if kept:
        assert wait_until(lambda: went_back.failed > 0, PATIENCE_S)
    else:
        drive.wait_until_committed()
    return verify(drive.config)


def observe(shared: tuple[Proxy, Cluster], folder: Path, late: str, *, kept: bool) -> Observed:
    """Run one case, from the first article to the verifier."""
    worker, flaws = f"{late}-{'kept' if kept else 'new'}", [KEEPING[late]] if kept else []
    properties = CAPPED if late == LATE_END_CAPPED else {}
    with driven(shared, folder, worker, flaws, properties) as drive, watching(drive.config) as went_back:
        report = offsets_late(drive, went_back, kept=kept) if late == LATE_OFFSETS else ended_late(drive, kept=kept)
    return Observed(report, went_back)


Cases = Mapping[tuple[str, bool], Future[Observed]]


@pytest.fixture(scope="module")
def cases(broker_and_proxy: tuple[Proxy, Cluster], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cases]:
    """All cases, in parallel."""
    folder = tmp_path_factory.mktemp("workers")
    with ThreadPoolExecutor(len(CASES)) as pool:
        yield {case: pool.submit(observe, broker_and_proxy, folder, case[0], kept=case[1]) for case in CASES}


def test_late_end_txn_doubles_a_record_without_a_new_producer(cases: Cases) -> None:
    """KAFKA-17754: it commits the written half of the next transaction without its offsets; that half is written again."""
    report = cases[LATE_END, True].result().report
    assert ["doubled"] == report.failed
    assert [1] == [check.failed for check in report.checks if check.name == "doubled"]


def test_late_end_txn_does_nothing_after_a_new_producer(cases: Cases) -> None:
    """The late request has an older epoch and is refused."""
    assert [] == cases[LATE_END, False].result().report.failed


def test_late_end_txn_doubles_a_record_if_the_pause_is_the_backoff_alone(cases: Cases) -> None:
    """If the maximum backoff is below the backoff, a request is repeated within a call that does not count as slow."""
    assert ["doubled"] == cases[LATE_END_CAPPED, True].result().report.failed


def test_late_end_txn_does_nothing_if_the_pause_is_the_shortest_retry(cases: Cases) -> None:
    """With the same properties, the unmodified worker replaces its producer."""
    assert [] == cases[LATE_END_CAPPED, False].result().report.failed


def test_late_offsets_take_the_group_back_without_a_new_producer(cases: Cases) -> None:
    """The committed offset goes back, while outputs lie ahead of it: a successor would double them."""
    observed = cases[LATE_OFFSETS, True].result()
    assert ["published ahead"] == observed.report.failed
    assert [2] == [place.offset for place in observed.went_back.examples]


def test_late_offsets_do_nothing_after_a_new_producer(cases: Cases) -> None:
    """The late offsets have an older epoch and are refused."""
    observed = cases[LATE_OFFSETS, False].result()
    assert [] == observed.report.failed
    assert observed.went_back.checked > 0
    assert observed.went_back.failed == 0
