"""The configuration of a node, without starting one."""

from __future__ import annotations

from pathlib import Path

from tools.kafka.properties import Listener, render, server_properties

LOG = Path("/data/log")


def test_client_is_told_the_proxys_port_where_a_proxy_stands_in_between() -> None:
    """A listener with an advertised port listens on its own and sends clients to the other."""
    listeners = [Listener("PLAINTEXT", 20001), Listener("PROXIED", 20002, advertised_port=20003)]
    properties = server_properties(1, {1: 20000}, listeners, LOG)
    assert properties["advertised.listeners"] == "PLAINTEXT://127.0.0.1:20001,PROXIED://127.0.0.1:20003"
    assert "PROXIED://127.0.0.1:20002" in properties["listeners"].split(",")
    assert "PROXIED:PLAINTEXT" in properties["listener.security.protocol.map"].split(",")


def test_listener_speaks_its_own_protocol() -> None:
    """Listeners with and without TLS coexist; brokers use the first one among themselves."""
    listeners = [Listener("PLAINTEXT", 20001), Listener("TLS", 20002, protocol="SSL")]
    properties = server_properties(1, {1: 20000}, listeners, LOG)
    protocols = properties["listener.security.protocol.map"].split(",")
    assert {"PLAINTEXT:PLAINTEXT", "TLS:SSL", "CONTROLLER:PLAINTEXT"} == set(protocols)
    assert "PLAINTEXT" == properties["inter.broker.listener.name"]


def test_three_nodes_keep_three_copies_and_need_two() -> None:
    """Every topic, also Kafka's own, survives the death of one node."""
    properties = server_properties(2, {1: 20000, 2: 20001, 3: 20002}, [Listener("PLAINTEXT", 20003)], LOG)
    assert properties["controller.quorum.voters"] == "1@127.0.0.1:20000,2@127.0.0.1:20001,3@127.0.0.1:20002"
    for topic in ("default", "offsets.topic", "transaction.state.log"):
        assert properties[f"{topic}.replication.factor"] == "3"
    assert "2" == properties["min.insync.replicas"] == properties["transaction.state.log.min.isr"]


def test_properties_are_one_line_each() -> None:
    """The file has the format that Kafka reads."""
    assert render({"node.id": "1", "log.dirs": "/data/log"}) == "node.id=1\nlog.dirs=/data/log\n"
