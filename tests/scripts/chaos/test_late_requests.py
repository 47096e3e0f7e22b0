"""Requests that arrive after their transaction was aborted, on a broker that does not check them (KIP-890).

It appends a Produce request after the abort if its epoch is the newest that the partition knows. Then the producer's next
transaction commits it, or it stays open forever. It accepts offsets in the same way.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from kafka.clients import config_for, opened, records_of, release_of, sink_for
from kafka.harness import Sent, publish
from support.patience import PATIENCE_S
from support.reading import read_all
from support.topics import Topics, make_topics

from enricher.errors import TransactionTrouble
from enricher.worker.kafka.membership import Member
from enricher.worker.kafka.producers import UnfencedProducer, close_in_background
from enricher.worker.kafka.sink import TransactionalSink
from enricher.worker.records import RawRecord
from tools.chaos.proxy import Proxy, nodes_behind_a_proxy
from tools.chaos.rules import Answered, Api, Delay, Match
from tools.kafka import Cluster
from tools.kafka.versions import OLDEST
from tools.reading import Reader
from tools.waiting import wait_until

pytestmark = pytest.mark.broker

UNCHECKED = {
    "transaction.partition.verification.enable": "false",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "3600000",
}
"""As brokers before 3.6 are. And the broker aborts no transaction for its age, which would raise the epoch."""
MARKER_S = 1.0
"""So long a transaction is watched that must stay open. A marker is written sooner, unless the machine is busy."""
PRODUCE = Match({Api.PRODUCE}, "enricher-worker-0")
OFFSETS = Match({Api.TXN_OFFSET_COMMIT}, "enricher-worker-0")


@pytest.fixture(scope="module")
def proxied() -> Iterator[tuple[Proxy, Cluster]]:
    """One broker behind a proxy, of the oldest version."""
    with nodes_behind_a_proxy(1, version=OLDEST, properties=UNCHECKED) as shared:
        yield shared


@pytest.fixture
def topics(proxied: tuple[Proxy, Cluster]) -> Iterator[Topics]:
    """Topics with two partitions, past the proxy, which has no rule left afterwards."""
    proxy, cluster = proxied
    yield make_topics(cluster.bootstrap_servers, partitions=2)
    proxy.lift_all()


class AbortsFirst(UnfencedProducer):
    """Closes the old producer at once, which then aborts with its own epoch."""

    def put(self, producer: Producer) -> None:
        """Close it, and wait until it has."""
        close_in_background(producer).join()


def late(
    proxied: tuple[Proxy, Cluster], topics: Topics, match: Match, unfenced: UnfencedProducer, count: int
) -> tuple[TransactionalSink, list[RawRecord]]:
    """A request of a transaction with `count` records arrives after the abort, when a new producer exists."""
    proxy, _ = proxied
    source, _ = opened(config_for(topics))
    records = records_of(source, count)
    sink, _ = sink_for(source, config_for(topics, bootstrap_servers=proxy.addresses, transaction_timeout_s=5))
    sink._unfenced = unfenced
    # All of them: the client sends one again when its connection times out, which may be before the sink gives up.
    proxy.apply(late := Delay(match, 3600))
    with pytest.raises(TransactionTrouble):
        sink.publish(release_of(records))
    sink.recover()
    proxy.apply(answered := Answered(match))
    proxy.lift(late)
    assert answered.caught.wait(PATIENCE_S)
    return sink, records


def is_stable(topics: Topics, within_s: float = PATIENCE_S) -> bool:
    """Whether no transaction is open in the output topic, as soon as markers are written."""
    reader = Reader(topics.bootstrap_servers, topics.group)

    def stable() -> bool:
        return all(stable == end for stable, end in reader.stable_and_ends(topics.output).values())

    return wait_until(stable, within_s, 0.1)


@pytest.mark.parametrize(("unfenced", "stable", "outputs"), [(AbortsFirst, False, 2), (UnfencedProducer, True, 1)])
def test_produce_behind_the_abort_is_refused_where_a_new_producer_aborted(
    proxied: tuple[Proxy, Cluster], topics: Topics, unfenced: type[UnfencedProducer], outputs: int, *, stable: bool
) -> None:
    """If the old producer aborted, the record stays open until the next transaction commits it."""
    publish(topics.bootstrap_servers, topics.input, [Sent(b"key", b"value")])
    sink, records = late(proxied, topics, PRODUCE, unfenced(), 1)
    assert stable == is_stable(topics, PATIENCE_S if stable else MARKER_S)
    sink.publish(release_of(records))
    assert outputs == len(read_all(topics.bootstrap_servers, topics.output))
    assert is_stable(topics)


def test_a_transaction_that_failed_is_ended_when_its_worker_ends(
    proxied: tuple[Proxy, Cluster], topics: Topics
) -> None:
    """Readers do not wait for the transaction timeout, and a late request is refused."""
    proxy, _ = proxied
    publish(topics.bootstrap_servers, topics.input, [Sent(b"key", b"value")])
    source, _ = opened(config_for(topics))
    sink, _ = sink_for(source, config_for(topics, bootstrap_servers=proxy.addresses, transaction_timeout_s=60))
    records = records_of(source, 1)

    def no_member() -> Member:
        raise TransactionTrouble("no member")

    source.membership = no_member  # type: ignore[method-assign]  # what a rebalance does to it
    with pytest.raises(TransactionTrouble):
        sink.publish(release_of(records))
    assert not is_stable(topics, MARKER_S)
    sink.close()
    assert is_stable(topics)


@pytest.mark.parametrize(("unfenced", "lost"), [(AbortsFirst, True), (UnfencedProducer, False)])
def test_offsets_behind_the_abort_are_refused_where_a_new_one_aborted(
    proxied: tuple[Proxy, Cluster], topics: Topics, unfenced: type[UnfencedProducer], *, lost: bool
) -> None:
    """If the old producer aborted, the next transaction commits offsets of a partition without their outputs."""
    places = publish(topics.bootstrap_servers, topics.input, [Sent(b"%d" % key, b"value") for key in range(20)])
    sink, records = late(proxied, topics, OFFSETS, unfenced(), len(places))
    first = [record for record in records if record.partition.number == 0]
    sink.publish(release_of(first))
    committed = Reader(topics.bootstrap_servers, topics.group).committed_and_ends(topics.input)
    assert committed[0] == (len(first), len(first))
    assert lost == (committed[1][0] > 0)
