"""Each rule of the proxy, between a real client and a real broker."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from support.patience import PATIENCE_S
from support.reading import read_all
from support.topics import Topics

from tools.chaos.proxy import Proxy
from tools.chaos.rules import Api, Cut, Delay, DropReply, Hold, Match, Watch
from tools.waiting import wait_until

pytestmark = pytest.mark.broker


def producer_of(proxy: Proxy, name: str, *, transactional: bool = True) -> Producer:
    """A producer that connects through the proxy, with timeouts as long as a test may take."""
    properties = {
        "bootstrap.servers": proxy.addresses,
        "client.id": name,
        "log_level": 0,
        "socket.timeout.ms": 5_000,
        "reconnect.backoff.max.ms": 200,
        "retry.backoff.ms": 100,
    }
    if not transactional:
        return Producer(properties)
    producer = Producer({**properties, "transactional.id": name, "transaction.timeout.ms": 30_000})
    producer.init_transactions(PATIENCE_S)
    return producer


def write(producer: Producer, topics: Topics, *values: str) -> None:
    """Write values and wait until the broker has acknowledged them."""
    for value in values:
        producer.produce(topics.output, value, partition=0)
    assert producer.flush(PATIENCE_S) == 0


def transact(producer: Producer, topics: Topics, *values: str) -> None:
    """Write values in one committed transaction."""
    producer.begin_transaction()
    write(producer, topics, *values)
    producer.commit_transaction(PATIENCE_S)


def seen(topics: Topics) -> list[str]:
    """What a read_committed consumer past the proxy sees."""
    return [(message.value() or b"").decode() for message in read_all(topics.bootstrap_servers, topics.output)]


def test_client_that_begins_at_the_proxy_stays_with_it(proxy: Proxy, topics: Topics) -> None:
    """The broker advertises the proxy's port, and the client's requests pass under its name."""
    proxy.apply(watch := Watch(Match({Api.END_TXN}, "steady")))
    producer = producer_of(proxy, "steady")
    transact(producer, topics, "a", "b")
    assert {broker.port for broker in producer.list_topics(timeout=PATIENCE_S).brokers.values()} == set(proxy.ports)
    assert watch.caught.is_set()
    assert seen(topics) == ["a", "b"]


def test_rules_are_for_those_that_match(proxy: Proxy, topics: Topics) -> None:
    """Rules for another client, request or node do not affect this client."""
    rules = [
        Hold(Match({Api.END_TXN}, "somebody-else")),
        Hold(Match({Api.HEARTBEAT}, "matching")),
        Cut(Match(nodes={1})),
    ]
    for rule in rules:
        proxy.apply(rule)
    transact(producer_of(proxy, "matching"), topics, "a")
    assert [False] * 3 == [rule.caught.is_set() for rule in rules]
    assert seen(topics) == ["a"]


def test_held_request_reaches_the_broker_though_its_client_has_gone(proxy: Proxy, topics: Topics) -> None:
    """KAFKA-17754: the late EndTxn of one transaction commits the written half of the next."""
    producer = producer_of(proxy, "late")
    proxy.apply(hold := Hold(Match({Api.END_TXN}, "late"), hang_up=True))
    transact(producer, topics, "first")  # by the repeated request
    assert hold.caught.is_set()
    producer.begin_transaction()
    write(producer, topics, "half")
    assert seen(topics) == ["first"]
    proxy.lift(hold)
    assert wait_until(lambda: seen(topics) == ["first", "half"], PATIENCE_S)


def test_dropped_reply_leaves_the_client_in_the_dark_about_what_was_done(proxy: Proxy, topics: Topics) -> None:
    """The commit times out although it has happened; a retry succeeds."""
    producer = producer_of(proxy, "in-the-dark")
    proxy.apply(drop := DropReply(Match({Api.END_TXN}, "in-the-dark")))
    producer.begin_transaction()
    write(producer, topics, "done")
    with pytest.raises(KafkaException) as caught:
        producer.commit_transaction(1.0)
    assert KafkaError._TIMED_OUT == caught.value.args[0].code()
    assert drop.caught.is_set()
    assert seen(topics) == ["done"]
    producer.commit_transaction(PATIENCE_S)


def test_delay_holds_up_both_ways_and_ends_at_once_when_lifted(proxy: Proxy, topics: Topics) -> None:
    """A reply takes at least twice the delay; lifting ends even a delay of an hour."""
    producer = producer_of(proxy, "slow")
    proxy.apply(short := Delay(Match(client="slow"), 0.2))
    began_s = time.monotonic()
    producer.list_topics(timeout=PATIENCE_S)
    assert time.monotonic() - began_s >= 0.4
    proxy.lift(short)
    proxy.apply(long := Delay(Match(client="slow"), 3600))
    producer.begin_transaction()
    producer.produce(topics.output, "a", partition=0)
    assert producer.flush(0.3) == 1
    proxy.lift(long)
    assert producer.flush(PATIENCE_S) == 0


def test_cut_ends_connections_and_refuses_new_ones(proxy: Proxy, topics: Topics) -> None:
    """Nothing passes while the rule lasts; afterwards the client reconnects."""
    producer = producer_of(proxy, "cut", transactional=False)
    write(producer, topics, "before")
    proxy.apply(cut := Cut(Match(client="cut")))
    assert cut.caught.is_set()
    producer.produce(topics.output, "after", partition=0)
    assert producer.flush(1.0) == 1
    proxy.lift(cut)
    assert producer.flush(PATIENCE_S) == 0
    assert seen(topics) == ["before", "after"]
