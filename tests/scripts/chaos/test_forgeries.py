"""Replies that the proxy changes, and how a real client reacts."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from support.patience import PATIENCE_S, wait_until
from support.topics import Topics

from tools.chaos.proxy import Proxy
from tools.chaos.rules import Api, Match, Request, Rule

VALUE = b'{"id":"Athens"}'
DAMAGED = VALUE.replace(b"Athens", b"@thens")


class DamagedRecords(Rule):
    """Flips one bit of one record's value in every other Fetch reply, as a faulty network card does.

    The bit is the first one after `marker`, by default in the article's id, which every output repeats. The checksum of the
    batch is left as it was.
    """

    def __init__(self, match: Match, marker: bytes = b'{"id":"') -> None:
        super().__init__(match)
        self._marker = marker
        self._whole_next = False
        self.damaged = 0
        """How many replies were damaged."""

    def altered(self, request: Request, frame: bytes) -> bytes:  # noqa: ARG002  the base class asks for it
        """The frame, damaged or not."""
        found = frame.find(self._marker)
        if found < 0:
            return frame
        whole, self._whole_next = self._whole_next, not self._whole_next
        if whole:
            return frame
        at = found + len(self._marker)
        self.damaged += 1
        self.caught.set()
        return frame[:at] + bytes([frame[at] ^ 1]) + frame[at + 1 :]


def consumer_of(proxy: Proxy, topics: Topics, name: str, **properties: bool) -> Consumer:
    """A consumer that connects through the proxy."""
    return Consumer(
        {
            "bootstrap.servers": proxy.addresses,
            "client.id": name,
            "group.id": topics.group,
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
        | {key.replace("_", "."): value for key, value in properties.items()}
    )


@pytest.mark.broker
@pytest.mark.parametrize(("checked", "first"), [(False, DAMAGED), (True, VALUE)])
def test_damaged_record_passes_as_data_unless_checksums_are_checked(
    proxy: Proxy, topics: Topics, *, checked: bool, first: bytes
) -> None:
    """Negative control: only a client that checks the batch's checksum notices, and it fetches again."""
    producer = Producer({"bootstrap.servers": topics.bootstrap_servers, "log_level": 0})
    producer.produce(topics.input, VALUE, partition=0)
    assert producer.flush(PATIENCE_S) == 0
    name = f"checked-{checked}"
    proxy.apply(damage := DamagedRecords(Match({Api.FETCH}, name)))
    consumer = consumer_of(proxy, topics, name, check_crcs=checked)
    consumer.assign([TopicPartition(topics.input, 0, 0)])
    assert first == first_value(consumer)
    assert damage.damaged == 1
    consumer.close()


def first_value(consumer: Consumer) -> bytes | None:
    """The value of the first record; errors are skipped."""
    found: list[bytes | None] = []

    def came() -> bool:
        message = consumer.poll(0.5)
        if message is not None and message.error() is None:
            found.append(message.value())
        return bool(found)

    wait_until(came, PATIENCE_S, "a record came", 0.0)
    return found[0]
