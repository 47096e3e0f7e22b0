"""Writes, commits, alters and deletes, as publishers, operators and retention do, and waits until the broker has done it."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable, Mapping
from contextlib import closing
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from support.patience import PATIENCE_S, retry, wait_until


def client(bootstrap_servers: str, **properties: str | int) -> dict[str, Any]:
    """The configuration of a client that is used once: its first connections follow each other soon, not after 50 ms."""
    names = {name.replace("_", "."): value for name, value in properties.items()}
    return {"bootstrap.servers": bootstrap_servers, "log_level": 0, "reconnect.backoff.ms": 20, **names}


def producer_of(bootstrap_servers: str, **properties: str | int) -> Producer:
    """A producer whose records stay in their order when a new topic's broker refuses some of them at first."""
    return Producer(client(bootstrap_servers, max_in_flight=1, **properties))


def admin_of(bootstrap_servers: str) -> AdminClient:
    """An administrator."""
    return AdminClient(client(bootstrap_servers))


def write(bootstrap_servers: str, topic: str, records: Iterable[Mapping[str, Any]]) -> None:
    """Write records, each given as keyword arguments of `Producer.produce`."""
    producer = producer_of(bootstrap_servers)
    for record in records:
        producer.produce(topic, **record)
    assert producer.flush(PATIENCE_S) == 0


def commit(
    bootstrap_servers: str, group: str, topic: str, offsets: Mapping[int, int], metadata: str | None = None
) -> None:
    """Commit offsets for a group, by partition."""
    places = [
        TopicPartition(topic, number, offset, metadata=metadata) if metadata else TopicPartition(topic, number, offset)
        for number, offset in offsets.items()
    ]
    with closing(Consumer(client(bootstrap_servers, group_id=group))) as consumer:
        # The coordinator of a new group is not there at once.
        retry(lambda: consumer.commit(offsets=places, asynchronous=False), KafkaException)


def alter(
    bootstrap_servers: str,
    name: str,
    settings: Mapping[str, str | None],
    kind: ResourceType = ResourceType.TOPIC,
) -> None:
    """Change settings of a topic or broker, and wait until it applies them; None: back to the default."""
    admin, resource = admin_of(bootstrap_servers), ConfigResource(kind, name)
    for setting, value in settings.items():
        operation = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
        resource.add_incremental_config(ConfigEntry(setting, str(value), incremental_operation=operation))
    admin.incremental_alter_configs([resource])[resource].result(PATIENCE_S)

    def applied() -> bool:
        found = admin.describe_configs([resource])[resource].result(PATIENCE_S)
        return all(value is None or found[setting].value == value for setting, value in settings.items())

    wait_until(applied, PATIENCE_S, f"{name} has {settings}", 0.05)


def delete_records(bootstrap_servers: str, topic: str, offsets: Mapping[int, int]) -> None:
    """Delete what stands before these offsets, as retention does; -1: everything."""
    places = [TopicPartition(topic, number, offset) for number, offset in offsets.items()]
    admin = admin_of(bootstrap_servers)  # which must outlive the answers
    for future in admin.delete_records(places).values():
        future.result(PATIENCE_S)


def delete_group(bootstrap_servers: str, group: str) -> None:
    """Delete a group, as retention does to the offsets of one without members for a week."""
    admin = admin_of(bootstrap_servers)
    # The member that has left is not forgotten at once.
    retry(lambda: admin.delete_consumer_groups([group])[group].result(PATIENCE_S), KafkaException)


_LEAVE_GROUP = 13
_UNKNOWN_MEMBER = 25


def expel(bootstrap_servers: str, group: str) -> None:
    """Remove all members from a group on a single broker, as an administrator does whose workers were killed.

    Else the next member gets no partition before the sessions of the dead ones end. The client has no such request.
    """
    admin = admin_of(bootstrap_servers)  # which must outlive the answer
    members = admin.describe_consumer_groups([group])[group].result(PATIENCE_S).members
    host, port = bootstrap_servers.split(":")
    with socket.create_connection((host, int(port)), PATIENCE_S) as connection, connection.makefile("rb") as answers:
        for member in members:
            texts = [text.encode() for text in ("tests", group, member.member_id)]
            request = struct.pack(">hhi", _LEAVE_GROUP, 0, 0) + b"".join(struct.pack(">h", len(t)) + t for t in texts)
            connection.sendall(struct.pack(">i", len(request)) + request)
            _, _, error = struct.unpack(">iih", answers.read(10))
            assert error in {0, _UNKNOWN_MEMBER}, error
